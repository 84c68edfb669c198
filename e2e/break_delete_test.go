package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fact is something the server has confirmed, and how to see that it still holds.
type fact struct {
	what  string
	holds func(context.Context, jetstream.JetStream) error
}

// TestBreakConfirmedDeletionsOverKills kills the server under purges, deletions of messages, streams and consumers, and
// updates that shrink a stream. What was confirmed is so after the restart.
func TestBreakConfirmedDeletionsOverKills(t *testing.T) {
	p := startGateway(t, t.TempDir())
	shown := 0
	for round := range 4 {
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			facts []fact
		)
		for k := range 4 {
			wg.Go(func() {
				removeUntilGone(t.Context(), p.URL, fmt.Sprintf("S%d_%d", round, k), func(f fact) {
					mu.Lock()
					defer mu.Unlock()
					facts = append(facts, f)
				})
			})
		}
		time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		p.Kill()
		wg.Wait()
		p = startGateway(t, p.dir)
		js, ctx := jetStream(t, connect(t, p.URL))
		for _, f := range facts {
			if err := f.holds(ctx, js); err != nil {
				t.Errorf("%s was confirmed, but after a kill: %v", f.what, err)
			}
		}
		shown += len(facts)
	}
	if shown == 0 {
		t.Fatal("nothing was shown: nothing was confirmed")
	}
}

// removeUntilGone makes streams of ten messages and removes something of each, until the server is gone.
func removeUntilGone(ctx context.Context, url, prefix string, confirmed func(fact)) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return // it was killed just now
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(500*time.Millisecond))
	if err != nil {
		return
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s_%d", prefix, i)
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}})
		for j := 0; j < 10 && err == nil; j++ {
			_, err = js.Publish(ctx, fmt.Sprintf("%s.%d", name, j%2), nil)
		}
		if err != nil {
			return
		}
		f := removals[i%len(removals)]
		if err := f.do(ctx, js, s, name); err != nil {
			return
		}
		confirmed(fact{f.what + " of " + name, func(ctx context.Context, js jetstream.JetStream) error {
			return f.holds(ctx, js, name)
		}})
	}
}

type removal struct {
	what  string
	do    func(context.Context, jetstream.JetStream, jetstream.Stream, string) error
	holds func(context.Context, jetstream.JetStream, string) error
}

var removals = []removal{
	{"deletion", func(ctx context.Context, js jetstream.JetStream, _ jetstream.Stream, name string) error {
		return js.DeleteStream(ctx, name)
	}, func(ctx context.Context, js jetstream.JetStream, name string) error {
		_, err := js.Stream(ctx, name)
		return wantError(err, jetstream.ErrStreamNotFound)
	}},
	{"purge by subject", func(ctx context.Context, _ jetstream.JetStream, s jetstream.Stream, name string) error {
		return s.Purge(ctx, jetstream.WithPurgeSubject(name+".1"))
	}, wantState(5, 1)},
	{"purge", func(ctx context.Context, _ jetstream.JetStream, s jetstream.Stream, _ string) error {
		return s.Purge(ctx)
	}, wantState(0, 11)},
	{"deletion of a message", func(ctx context.Context, _ jetstream.JetStream, s jetstream.Stream, _ string) error {
		return s.DeleteMsg(ctx, 5)
	}, wantState(9, 1)},
	{"update to three messages", func(ctx context.Context, js jetstream.JetStream, _ jetstream.Stream, name string) error {
		cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}, MaxMsgs: 3}
		_, err := js.UpdateStream(ctx, cfg)
		return err
	}, wantState(3, 8)},
	{"deletion of a consumer", func(ctx context.Context, _ jetstream.JetStream, s jetstream.Stream, _ string) error {
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "d"})
		return errors.Join(err, s.DeleteConsumer(ctx, "d"))
	}, func(ctx context.Context, js jetstream.JetStream, name string) error {
		_, err := js.Consumer(ctx, name, "d")
		return wantError(err, jetstream.ErrConsumerNotFound)
	}},
}

func wantError(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got error %w, want %w", err, want)
}

// wantState demands a number of messages and a first sequence; the last is 10 in any case.
func wantState(msgs, first uint64) func(context.Context, jetstream.JetStream, string) error {
	return func(ctx context.Context, js jetstream.JetStream, name string) error {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		st := s.CachedInfo().State
		if st.Msgs != msgs || st.FirstSeq != first || st.LastSeq != 10 {
			return fmt.Errorf("%d messages from %d to %d, want %d from %d to 10", st.Msgs, st.FirstSeq, st.LastSeq, msgs, first)
		}
		return nil
	}
}
