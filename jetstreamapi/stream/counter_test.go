package stream_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// countingStream is a stream of counters as simply as it can be said: the values each subject had, the last the counter's.
type countingStream struct {
	values map[string][]countedAt
	last   uint64
}

type countedAt struct {
	seq   uint64
	value *big.Int
}

func (s *countingStream) add(subject, by string) string {
	n, ok := new(big.Int).SetString(by, 10)
	if !ok {
		return "10171"
	}
	if had := s.values[subject]; len(had) > 0 {
		n.Add(n, had[len(had)-1].value)
	}
	s.last++
	s.values[subject] = append(s.values[subject], countedAt{s.last, n})
	return fmt.Sprintf("%d %s", s.last, n)
}

// countAnswer puts an answer as the model does.
func countAnswer(body string) string {
	var ack struct {
		server.JSPubAckResponse
		Value string `json:"val"`
	}
	if err := unmarshal(body, &ack); err != nil {
		return err.Error()
	}
	if ack.Error != nil {
		return fmt.Sprint(ack.Error.ErrCode)
	}
	return fmt.Sprintf("%d %s", ack.Sequence, ack.Value)
}

// TestCounterModel runs batches of increments, deletions and purges on counters and on plain ones.
func TestCounterModel(t *testing.T) {
	store := newStore(t, "")
	rapid.Check(t, func(rt *rapid.T) {
		router := bus.NewRouter()
		w := &ours{store: store, router: router, client: newClient(t, router)}
		cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, AllowMsgCounter: true}
		if err := w.create(t, cfg); err != nil {
			rt.Fatal(err)
		}
		defer w.stream.Stop()
		m := &countingStream{values: map[string][]countedAt{}}
		subject := func() string { return rapid.SampledFrom([]string{"s.a", "s.b"}).Draw(rt, "subject") }
		rt.Repeat(map[string]func(*rapid.T){
			"batch": func(rt *rapid.T) {
				var want []string
				for i := range rapid.IntRange(1, 6).Draw(rt, "batch") {
					by := rapid.SampledFrom([]string{"1", "+2", "-3", "0", "x", strings.Repeat("9", 40)}).Draw(rt, "by")
					s := subject()
					want = append(want, m.add(s, by))
					w.client.session.Publish(&bus.Msg{
						Subject: []byte(s), Reply: fmt.Appendf(nil, "_INBOX.c.%d", i), Header: block("Nats-Incr", by),
					})
				}
				w.client.session.Flush()
				for i := range want {
					_, body, _ := strings.Cut(<-w.client.answers, " ")
					if got := countAnswer(body); got != want[i] {
						rt.Fatalf("message %d of the batch: %s, want %s", i, got, want[i])
					}
				}
			},
			"delete": func(*rapid.T) {
				s := subject()
				if had := m.values[s]; len(had) > 0 {
					if err := w.deleteMsg(t, had[len(had)-1].seq, true); err != nil {
						rt.Fatal(err)
					}
					m.values[s] = had[:len(had)-1]
				}
			},
			"purge": func(*rapid.T) {
				s := subject()
				if _, err := w.purge(t, server.JSApiStreamPurgeRequest{Subject: s}); err != nil {
					rt.Fatal(err)
				}
				delete(m.values, s)
			},
		})
	})
}

// TestCountersAheadOfTheDisk counts while nothing becomes durable: each increment builds on the one before, and no
// answer leaves. A counter whose last message is deleted meanwhile cannot be read: it says so.
func TestCountersAheadOfTheDisk(t *testing.T) {
	w, fs := onDisk(t, server.StreamConfig{AllowMsgCounter: true})
	w.publish(t, "s.a", block("Nats-Incr", "5"), "")
	w.state(t)
	release := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	one := publication{subject: "s.a", header: []string{"Nats-Incr", "1"}}
	w.send(one, one, one)
	deleted := make(chan *server.ApiError, 1)
	w.stream.DeleteMsg(4, false, func(err *server.ApiError) { deleted <- err })
	w.send(one)
	if got := len(w.client.answers); got > 1 {
		t.Fatalf("%d answers before the disk, want the refusal alone", got)
	}
	close(release)
	var got []string
	for range 4 {
		_, body, _ := strings.Cut(<-w.client.answers, " ")
		got = append(got, countAnswer(body))
	}
	if want := "[2 6 3 7 4 8 10167]"; fmt.Sprint(got) != want {
		t.Errorf("answers %q, want %s", got, want)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	w.state(t)
	if got := countAnswer(w.publish(t, "s.a", block("Nats-Incr", "1"), "")); got != "5 8" {
		t.Errorf("then %s, want 8 at sequence 5", got)
	}
}
