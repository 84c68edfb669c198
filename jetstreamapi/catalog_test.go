package jetstreamapi

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// catalogModel is what a catalog should hold: description by stream, and by consumer.
type catalogModel struct {
	streams   map[string]string
	consumers map[string]map[string]string
}

func (m *catalogModel) String() string {
	out := ""
	for _, s := range slices.Sorted(maps.Keys(m.streams)) {
		out += s + "=" + m.streams[s]
		for _, c := range slices.Sorted(maps.Keys(m.consumers[s])) {
			out += " " + c + "=" + m.consumers[s][c]
		}
		out += "\n"
	}
	return out
}

// modelOf reads a catalog.
func modelOf(t *testing.T, c *catalog) *catalogModel {
	t.Helper()
	streams, consumers, err := c.records()
	if err != nil {
		t.Fatal(err)
	}
	m := &catalogModel{streams: map[string]string{}, consumers: map[string]map[string]string{}}
	for _, r := range streams {
		m.streams[r.Stream] = r.Config.Description
		m.consumers[r.Stream] = map[string]string{}
	}
	for _, r := range consumers {
		m.consumers[r.Stream][r.Consumer] = r.Settings.Description
	}
	return m
}

func openTestCatalog(t *testing.T, fs vfs.FS) (*storage.Store, *catalog) {
	t.Helper()
	st, err := storage.Open(context.Background(), storage.Options{Dir: "data", FS: fs, SegmentSize: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCatalog(st.Catalog())
	if err != nil {
		t.Fatal(err)
	}
	return st, c
}

// change makes one random change in both.
func (m *catalogModel) change(t *testing.T, rng *rand.Rand, c *catalog) {
	t.Helper()
	s, o, text := fmt.Sprint("S", rng.IntN(4)), fmt.Sprint("C", rng.IntN(4)), fmt.Sprint(rng.IntN(100))
	r := catalogRecord{Account: "A", Stream: s}
	_, exists := m.streams[s]
	switch op := rng.IntN(10); {
	case !exists || op == 0:
		r.Config = &server.StreamConfig{Name: s, Description: text, Storage: server.FileStorage}
		m.streams[s] = text
		if !exists {
			m.consumers[s] = map[string]string{}
		}
	case op == 1:
		r.Removed = true
		delete(m.streams, s)
		delete(m.consumers, s)
	case op == 2:
		r.Consumer, r.Removed = o, true
		delete(m.consumers[s], o)
	default:
		r.Consumer, r.Settings = o, &server.ConsumerConfig{Name: o, Description: text}
		m.consumers[s][o] = text
	}
	if err := c.put(r, nil); err != nil {
		t.Fatal(err)
	}
}

func TestCatalogHoldsWhatWasPut(t *testing.T) {
	first := rand.Uint64()
	for i := range uint64(15) {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) { checkCatalog(t, rand.New(rand.NewPCG(first+i, 0))) })
	}
}

// checkCatalog makes random changes across restarts.
func checkCatalog(t *testing.T, rng *rand.Rand) {
	t.Helper()
	fs := vfs.NewMem()
	m := &catalogModel{streams: map[string]string{}, consumers: map[string]map[string]string{}}
	st, c := openTestCatalog(t, fs)
	for range 3 {
		for range rng.IntN(400) {
			m.change(t, rng, c)
		}
		if n, _ := c.log.Changes(); n > 2*minCheckpointChanges {
			t.Fatalf("%d changes and no checkpoint", n)
		}
		if got := modelOf(t, c); got.String() != m.String() {
			t.Fatalf("while open:\n%s\nwant:\n%s", got, m)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st, c = openTestCatalog(t, fs)
		if got := modelOf(t, c); got.String() != m.String() {
			t.Fatalf("after a restart:\n%s\nwant:\n%s", got, m)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCatalogOfANewerBuildIsRefused(t *testing.T) {
	for _, entry := range []string{`{"v":3,"account":"A","stream":"S"}`, `not json`} {
		fs := vfs.NewMem()
		st, err := storage.Open(context.Background(), storage.Options{Dir: "data", FS: fs, SegmentSize: 128 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Catalog().Load(func([]byte, bool) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := st.Catalog().Append([]byte(entry), nil); err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if st, err = storage.Open(context.Background(), storage.Options{Dir: "data", FS: fs, SegmentSize: 128 << 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := openCatalog(st.Catalog()); err == nil {
			t.Errorf("%s was taken", entry)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
