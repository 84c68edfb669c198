package archive_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"
	"testing/iotest"

	natsarchive "github.com/nats-io/nats-server/v2/server/archive"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
)

// item is an entry with what is in it.
type item struct {
	Name         string
	Time         int64
	Seq          uint64
	Header, Data string
}

var items = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
	return item{
		Name: rapid.StringN(1, 40, -1).Draw(t, "name"), Time: rapid.Int64().Draw(t, "time"),
		Seq: rapid.Uint64().Draw(t, "seq"), Header: rapid.StringN(0, 30, -1).Draw(t, "header"),
		Data: rapid.StringN(0, 300, -1).Draw(t, "data"),
	}
}), 0, 12)

func write(t interface{ Fatal(...any) }, list []item) []byte {
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	for _, i := range list {
		if err := w.Add([]byte(i.Name), i.Time, i.Seq, []byte(i.Header), []byte(i.Data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if w.Add([]byte("x"), 1, 1, nil, nil) == nil {
		t.Fatal("an entry was taken after the end")
	}
	return b.Bytes()
}

// read returns the entries of an archive and the error that ended it.
func read(from io.Reader) (list []item, err error) {
	r := archive.NewReader(from)
	for {
		e, err := r.Next()
		if err != nil {
			return list, err
		}
		i := item{Name: string(e.Name), Time: e.Time, Seq: e.Seq}
		header := e.Header
		body, err := r.Body(nil, math.MaxInt64)
		if err != nil {
			return list, err
		}
		i.Header, i.Data = string(body[:header]), string(body[header:])
		list = append(list, i)
	}
}

func equal(t *rapid.T, got, want []item) {
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("entry %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := items.Draw(t, "items")
		got, err := read(iotest.OneByteReader(bytes.NewReader(write(t, list))))
		if !errors.Is(err, io.EOF) {
			t.Fatalf("ended with %v", err)
		}
		equal(t, got, list)
	})
}

// What is written here, nats-server reads, and the reverse.
func TestAsNATSServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := items.Draw(t, "items")
		var theirs bytes.Buffer
		w := natsarchive.NewWriter(&theirs)
		for _, i := range append(list, item{}) {
			h := &natsarchive.Header{
				Name: i.Name, Timestamp: i.Time, Sequence: i.Seq,
				HeaderSize: int64(len(i.Header)), PayloadSize: int64(len(i.Data)),
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(i.Header + i.Data)); err != nil {
				t.Fatal(err)
			}
		}
		if ours := write(t, list); !bytes.Equal(ours, theirs.Bytes()) {
			t.Fatalf("written\n%q, nats-server writes\n%q", ours, theirs.Bytes())
		}
	})
}

func isFormatError(err error, start string) bool {
	e, ok := errors.AsType[*archive.FormatError](err)
	return ok && string(e.Start) == start
}

func TestTruncated(t *testing.T) {
	whole := write(t, []item{{Name: "state.json", Time: 1, Data: "{}"}, {Name: "a.b", Time: 7, Seq: 300, Header: "hh", Data: "dd"}})
	for n := range whole {
		_, err := read(bytes.NewReader(whole[:n]))
		if n > 0 && n < len(archive.Magic) {
			if !isFormatError(err, string(whole[:n])) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
			continue
		}
		if !errors.Is(err, archive.ErrTruncated) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestDamaged(t *testing.T) {
	for name, b := range map[string]string{
		"long name":        "\xff\xff\xff\xff\x0f",
		"endless number":   "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"overlong payload": "\x01\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7fx",
	} {
		if _, err := read(bytes.NewReader([]byte(archive.Magic + b))); !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := read(bytes.NewReader([]byte("meta.inf and so on"))); !isFormatError(err, "meta.inf") {
		t.Errorf("a tar: %v", err)
	}
}

// A length alone costs no memory.
func TestLengthsAreNotTrusted(t *testing.T) {
	b := []byte(archive.Magic + "\x01\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x3fx" + "little")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := read(bytes.NewReader(b))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, archive.ErrTruncated) {
		t.Errorf("read: %v", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func TestBodyLimit(t *testing.T) {
	r := archive.NewReader(bytes.NewReader(write(t, []item{{Name: "a", Data: "12345"}, {Name: "b", Data: "1"}})))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Body(nil, 4); !errors.Is(err, archive.ErrTooLarge) {
		t.Errorf("body: %v", err)
	}
	if e, err := r.Next(); err != nil || string(e.Name) != "b" {
		t.Errorf("what was not read is not skipped: %v, %v", e, err)
	}
}

// FuzzReader looks for a panic, and for entries that nats-server's reader sees otherwise.
func FuzzReader(f *testing.F) {
	f.Add(write(f, []item{{Name: "state.json", Time: 1, Data: "{}"}, {Name: "a.b", Time: 7, Seq: 300, Header: "hh", Data: "dd"}}))
	f.Add([]byte(archive.Magic))
	f.Add([]byte(archive.Magic + "\x01\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x3fx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(bytes.NewReader(b))
		theirs := natsarchive.NewReader(bytes.NewReader(b))
		for i := range got {
			h, err := theirs.Next()
			if err != nil {
				t.Fatalf("entry %d: nats-server says %v", i, err)
			}
			if h.Name != got[i].Name || h.Sequence != got[i].Seq || h.Timestamp != got[i].Time {
				t.Fatalf("entry %d is %+v, nats-server reads %+v", i, got[i], h)
			}
		}
		if errors.Is(err, io.EOF) {
			if h, err := theirs.Next(); err != nil || h.Name != "" {
				t.Fatalf("ended where nats-server reads %+v, %v", h, err)
			}
		}
	})
}
