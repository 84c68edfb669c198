package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestBreakCounter has twenty clients increment one key, each with the revision it read. Every increment that was
// confirmed counts once, and none counts twice.
func TestBreakCounter(t *testing.T) {
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "N"})
	noErr(t, err)
	_, err = kv.PutString(ctx, "n", "0")
	noErr(t, err)
	const clients, each = 20, 15
	var wg sync.WaitGroup
	for range clients {
		js, ctx := jetStream(t, connect(t, p.URL))
		wg.Go(func() {
			for done := 0; done < each; {
				switch err := increment(ctx, js); {
				case err == nil:
					done++
				case !errors.Is(err, jetstream.ErrKeyExists): // somebody was faster: read again
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	e, err := kv.Get(ctx, "n")
	noErr(t, err)
	if want := strconv.Itoa(clients * each); string(e.Value()) != want || e.Revision() != clients*each+1 {
		t.Errorf("the counter is at %s in revision %d, want %s in %d", e.Value(), e.Revision(), want, clients*each+1)
	}
}

func increment(ctx context.Context, js jetstream.JetStream) error {
	kv, err := js.KeyValue(ctx, "N")
	if err != nil {
		return err
	}
	e, err := kv.Get(ctx, "n")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(e.Value()))
	if err != nil {
		return err
	}
	_, err = kv.Update(ctx, "n", []byte(strconv.Itoa(n+1)), e.Revision())
	return err
}

// TestBreakLastValueOverKills puts values into few keys of a bucket without history, so that space is taken and given
// back all the time, and kills the server. Each key has a value at least as new as the last one that was confirmed.
func TestBreakLastValueOverKills(t *testing.T) {
	t.Parallel()
	const keys = 8
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "V", History: 1})
	noErr(t, err)
	var sent, confirmed [keys]atomic.Int64
	for range 5 {
		var wg sync.WaitGroup
		for k := range keys {
			wg.Go(func() { putUntilGone(ctx, p.URL, k, &sent[k], &confirmed[k]) })
		}
		time.Sleep(time.Duration(150+rand.IntN(250)) * time.Millisecond)
		p.Kill()
		wg.Wait()
		p = startGateway(t, p.dir)
		js, ctx := jetStream(t, connect(t, p.URL))
		kv, err := js.KeyValue(ctx, "V")
		noErr(t, err)
		for k := range keys {
			checkValue(ctx, t, kv, k, confirmed[k].Load(), sent[k].Load())
		}
		st, err := kv.Status(ctx)
		noErr(t, err)
		if st.Values() > keys {
			t.Errorf("%d values for %d keys", st.Values(), keys)
		}
	}
	if confirmed[0].Load() == 0 {
		t.Fatal("nothing was shown: no put was confirmed")
	}
}

func putUntilGone(ctx context.Context, url string, k int, sent, confirmed *atomic.Int64) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return // it was killed just now
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(500*time.Millisecond))
	if err != nil {
		return
	}
	value := make([]byte, 20_000)
	for {
		n := sent.Add(1)
		copy(value, fmt.Sprintf("%019d", n))
		put, cancel := context.WithTimeout(ctx, time.Second)
		_, err := js.Publish(put, fmt.Sprintf("$KV.V.k%d", k), value)
		cancel()
		if err != nil {
			return
		}
		confirmed.Store(n)
	}
}

func checkValue(ctx context.Context, t *testing.T, kv jetstream.KeyValue, k int, confirmed, sent int64) {
	t.Helper()
	e, err := kv.Get(ctx, fmt.Sprintf("k%d", k))
	if err != nil {
		if confirmed > 0 {
			t.Errorf("key %d: %v, although put %d was confirmed", k, err, confirmed)
		}
		return
	}
	n, err := strconv.ParseInt(string(e.Value()[:19]), 10, 64)
	if err != nil || n < confirmed || n > sent {
		t.Errorf("key %d has value %d (%v), but %d was confirmed and %d sent", k, n, err, confirmed, sent)
	}
}

// TestRevisionsOutliveDeletions deletes, purges and puts a key, with kills between: what was read before a deletion can
// never be taken for what came after it.
func TestRevisionsOutliveDeletions(t *testing.T) {
	t.Parallel()
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "R", History: 1})
	noErr(t, err)
	var read uint64 // the revision that the value before the last deletion was read in
	for round := range 6 {
		js, ctx := jetStream(t, connect(t, p.URL))
		kv, err := js.KeyValue(ctx, "R")
		noErr(t, err)
		if read > 0 {
			if _, err := kv.Update(ctx, "k", []byte("late"), read); !errors.Is(err, jetstream.ErrKeyExists) {
				t.Fatalf("round %d: an update of revision %d, deleted since: %v", round, read, err)
			}
		}
		rev, err := kv.Create(ctx, "k", []byte("new"))
		noErr(t, err)
		if rev <= read {
			t.Fatalf("round %d: created in revision %d, and was in %d before", round, rev, read)
		}
		read = rev
		if round%2 == 0 {
			noErr(t, kv.Delete(ctx, "k"))
		} else {
			noErr(t, kv.Purge(ctx, "k"))
		}
		p.Kill()
		p = startGateway(t, p.dir)
	}
}
