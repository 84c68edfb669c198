package storage

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestKeysWhileAppending counts keys from many sides while records are appended, sealed and deleted: what is counted is
// never less than what was there when the question was asked, and never more than what is there afterwards; and when all
// is quiet, what a walk over the keys says.
func TestKeysWhileAppending(t *testing.T) {
	const seals, each, askers = 5, 3_000, 4
	s := open(t, Options{Dir: t.TempDir(), Shards: 1, Seal: true, SealMaxAge: time.Hour})
	l := create(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range askers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := l.Visible() // each record so far has a key of its own
				if n := uint64(l.Keys()); n < least || n > l.Visible() {
					t.Errorf("%d keys, and %d records before, %d after", n, least, l.Visible())
					return
				}
			}
		})
	}
	seq := uint64(0)
	for range seals {
		for range each {
			seq++
			if err := l.Append(rec(seq, fmt.Sprintf("k.%d", seq), 1), nil); err != nil {
				t.Error(err)
			}
		}
		wait(t, l)
		if err := s.sealer.seal(noPace); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	check := func(want int) {
		t.Helper()
		walked := 0
		l.EachKey(nil, func([]byte, KeyState) bool { walked++; return true })
		if n := l.Keys(); n != want || walked != want {
			t.Fatalf("%d keys, a walk finds %d, want %d", n, walked, want)
		}
	}
	check(seals * each)
	if _, err := l.Delete([]uint64{1, 2, each + 1, seals * each}, false, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	check(seals*each - 4)
	if err := l.Append(rec(seq+1, "k.7", 1), nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	check(seals*each - 4)
}
