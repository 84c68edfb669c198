package tail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidwall/wal"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

const entries = 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func entry(i int) []byte { return fmt.Appendf(nil, "entry %d, and some more bytes", i) }

// What github.com/tidwall/wal does with the files that a power loss leaves, and what this package does with the same damage:
// the evidence of docs/adr/0001-own-segment-log.md.

// tidwallFile writes a log and returns its bytes.
func tidwallFile(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	l, err := wal.Open(dir, nil)
	must(t, err)
	for i := range entries {
		must(t, l.Write(uint64(i+1), entry(i)))
	}
	must(t, l.Close())
	b, err := os.ReadFile(filepath.Join(dir, "00000000000000000001"))
	must(t, err)
	return b
}

// tidwallOpen opens a log whose only file holds b, and returns its last index.
func tidwallOpen(t *testing.T, b []byte) (uint64, error) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "00000000000000000001"), b, 0o600))
	l, err := wal.Open(dir, nil)
	if err != nil {
		return 0, err
	}
	last, err := l.LastIndex()
	must(t, err)
	must(t, l.Close())
	return last, nil
}

// TestTidwallRefusesTornTail cuts the file within its last entry: Open fails, and there is no way to go on.
func TestTidwallRefusesTornTail(t *testing.T) {
	b := tidwallFile(t)
	for cut := 1; cut < len(entry(entries-1)); cut++ {
		if _, err := tidwallOpen(t, b[:len(b)-cut]); !errors.Is(err, wal.ErrCorrupt) {
			t.Fatalf("%d bytes cut: %v; has a newer version changed this?", cut, err)
		}
	}
}

// TestTidwallPhantomEntries adds zeros: each is an entry that nobody wrote.
func TestTidwallPhantomEntries(t *testing.T) {
	b := tidwallFile(t)
	last, err := tidwallOpen(t, append(b, make([]byte, 4096)...))
	if err != nil || last != entries+4096 {
		t.Fatalf("last index %d, %v; has a newer version changed this?", last, err)
	}
}

// TestTailTornTail does the same to our log: of the last block, which was not synced, everything from each byte on is zero. The
// log opens without that block.
func TestTailTornTail(t *testing.T) {
	o := tail.Options{Dir: t.TempDir(), SegmentSize: 16 << 10}
	l, err := tail.Open(o)
	must(t, err)
	must(t, l.Replay(func(tail.LSN, tail.Pos, []byte) error { return nil }))
	var at tail.Pos
	for i := range entries {
		if i == entries-1 {
			must(t, l.Sync())
		}
		_, at, err = l.Append(entry(i))
		must(t, err)
	}
	name := filepath.Join(o.Dir, "00000000000000000001.seg")
	b, err := os.ReadFile(name) // before Close proves that the last block is durable
	must(t, err)
	must(t, l.Close())
	for n := range entry(entries - 1) {
		torn := append([]byte(nil), b...)
		clear(torn[int(at.Offset)+n:])
		o.Dir = t.TempDir()
		must(t, os.WriteFile(filepath.Join(o.Dir, filepath.Base(name)), torn, 0o600))
		cuts := 0
		o.OnCut = func(string, int64, int64) { cuts++ }
		l, err := tail.Open(o)
		must(t, err)
		got := 0
		must(t, l.Replay(func(_ tail.LSN, _ tail.Pos, body []byte) error {
			if string(body) != string(entry(got)) {
				return fmt.Errorf("entry %d is %q", got, body)
			}
			got++
			return nil
		}))
		if got != entries-1 || cuts != 1 {
			t.Fatalf("%d bytes of the last block left: %d blocks, %d cuts", n, got, cuts)
		}
		must(t, l.Close())
	}
}
