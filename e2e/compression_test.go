package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// orderEvent is a message as programs send them: JSON in which the same words come again and again.
func orderEvent(rnd *rand.Rand, i int) []byte {
	states := []string{"created", "paid", "packed", "shipped", "delivered", "returned"}
	return fmt.Appendf(nil, `{"event_id":"%016x%016x","time":"2026-03-%02dT%02d:%02d:%02d.%03dZ","order":{"number":%d,`+
		`"status":%q,"currency":"EUR","total":%d.%02d,"customer":{"id":%d,"country":"DE"}},"source":"warehouse-%d",`+
		`"items":[{"sku":"SKU-%05d","quantity":%d},{"sku":"SKU-%05d","quantity":%d}],"trace":"%016x","version":3}`,
		rnd.Uint64(), rnd.Uint64(), 1+rnd.IntN(28), rnd.IntN(24), rnd.IntN(60), rnd.IntN(60), rnd.IntN(1000), 100000+i,
		states[rnd.IntN(len(states))], rnd.IntN(500), rnd.IntN(100), rnd.IntN(90000), rnd.IntN(9), rnd.IntN(40000),
		1+rnd.IntN(4), rnd.IntN(40000), 1+rnd.IntN(4), rnd.Uint64())
}

// sizeOf returns the bytes of the files below dir whose names end so.
func sizeOf(t *testing.T, dir, suffix string) (n int64) {
	t.Helper()
	noErr(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(d.Name(), suffix) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// TestCompression stores the same events in two streams, one of them compressed, on the gateway and on a nats-server, and
// compares what they take on disk: compression saves about as much here as there.
func TestCompression(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	const n = 50_000
	taken := func(url, dir, suffix string, how jetstream.StoreCompression, settle func()) int64 {
		t.Helper()
		js, ctx := jetStream(t, connect(t, url))
		before := sizeOf(t, dir, suffix)
		name := "Z" + strings.ToUpper(how.String()[:2])
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Compression: how,
		})
		noErr(t, err)
		rnd := rand.New(rand.NewPCG(1, 1))
		for i := range n {
			_, err := js.PublishAsync(fmt.Sprintf("%s.%d", name, i%50), orderEvent(rnd, i), jetstream.WithStallWait(30*time.Second))
			noErr(t, err)
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(time.Minute):
			t.Fatal("publishes are not answered")
		}
		settle()
		return sizeOf(t, dir, suffix) - before
	}
	theirDir := t.TempDir()
	oracle := startOracle(t, func(o *server.Options) { o.StoreDir = theirDir })
	theirs := func(how jetstream.StoreCompression) int64 {
		return taken(oracle.ClientURL(), theirDir, ".blk", how, func() { time.Sleep(time.Second) })
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "c.conf")
	noErr(t, os.WriteFile(conf, []byte("ehdb { allow_tmp_store: true, seal_max_age: \"100ms\" }\n"), 0o600))
	p := startGateway(t, dir, "-c", conf)
	ours := func(how jetstream.StoreCompression) int64 {
		return taken(p.URL, dir, ".part", how, func() { stable(t, dir) })
	}
	theirPlain, theirS2 := theirs(jetstream.NoCompression), theirs(jetstream.S2Compression)
	ourPlain, ourS2 := ours(jetstream.NoCompression), ours(jetstream.S2Compression)
	t.Logf("nats-server: %d bytes, compressed %d (%.2f); here %d, compressed %d (%.2f)", theirPlain, theirS2,
		float64(theirS2)/float64(theirPlain), ourPlain, ourS2, float64(ourS2)/float64(ourPlain))
	if float64(ourS2) > 1.2*float64(theirS2) {
		t.Errorf("compressed it takes %d bytes here, %d there", ourS2, theirS2)
	}
	if float64(ourS2)/float64(ourPlain) > 1.2*float64(theirS2)/float64(theirPlain) {
		t.Error("compression saves less here than there")
	}
}

// stable waits until the parts in dir have been the same for a while.
func stable(t *testing.T, dir string) {
	t.Helper()
	last, since := int64(-1), time.Now()
	for end := time.Now().Add(30 * time.Second); time.Since(since) < time.Second; time.Sleep(50 * time.Millisecond) {
		if n := sizeOf(t, dir, ".part"); n != last {
			last, since = n, time.Now()
		}
		if time.Now().After(end) {
			t.Fatal("the parts do not settle")
		}
	}
}
