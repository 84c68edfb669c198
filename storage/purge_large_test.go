package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestPurgeLarge purges a large part of what is sealed by a filter, and then most of the rest: the counts are exact and each takes a
// time that grows with what is removed, not with its square.
func TestPurgeLarge(t *testing.T) {
	const n = 200_000
	s := open(t, Options{Dir: t.TempDir(), Shards: 1, Seal: true, SealMaxAge: time.Hour, SegmentSize: 16 << 20})
	l, err := s.CreateLog(LogSpec{Shards: []ShardID{0}, Name: "l"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		r := Record{Seq: i + 1, Key: fmt.Appendf(nil, "s.%d.%d", i%2, i*7919%1000)}
		for l.Append(&r, nil) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.durable(); err != nil {
		t.Fatal(err)
	}
	if err := s.sealer.seal(noPace); err != nil {
		t.Fatal(err)
	}
	left := n
	for _, c := range []struct {
		prefix     string
		keep, want uint64
	}{{"s.1.", 0, n / 2}, {"s.0.", 10, n/2 - 10}} {
		began := time.Now()
		got, err := l.Purge(testFilter{prefix: c.prefix}, 0, c.keep, nil)
		if err != nil || got != c.want {
			t.Fatalf("purge of %s: %d, %v, want %d", c.prefix, got, err, c.want)
		}
		head := time.Since(began)
		if err := s.durable(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("purge of %s took %v, %v of it at the head", c.prefix, took, head)
		} else {
			t.Logf("purge of %s took %v, %v of it at the head", c.prefix, took, head)
		}
		left -= int(c.want)
		walk(t, l, left)
	}
	if st := l.VisibleState(); st.Messages != 10 {
		t.Errorf("%d messages are left", st.Messages)
	}
}

// walk reads all that is visible and demands that a cursor gives want records, ascending.
func walk(t *testing.T, l *Log, want int) {
	t.Helper()
	c, last, n := l.NewCursor(0, nil), uint64(0), 0
	for ; ; n++ {
		r, err := c.Next()
		if errors.Is(err, ErrEOF) {
			break
		}
		if err != nil || r.Seq <= last || n > want {
			t.Fatalf("record %d: sequence %d after %d, %v", n, r.Seq, last, err)
		}
		last = r.Seq
	}
	if n != want {
		t.Fatalf("%d records, want %d", n, want)
	}
}
