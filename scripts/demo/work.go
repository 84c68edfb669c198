package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// sight is one delivery of a message, and what became of its ack.
type sight struct {
	arrived, at time.Time // at the connection, and when the worker took it
	answered    time.Time // that its ack was
	reply       string    // where it is acknowledged: stream, consumer, deliveries, sequences, time, how many more
	again       bool      // it arrived behind a confirmed ack
	err         string    // of the ack; empty: confirmed, or not asked for
}

// worker is a worker on a durable consumer.
type worker struct {
	*load
	tap    *tap
	stream string
	done   map[string]int // acks that were confirmed, by id
	refuse func(id string) bool
}

// run takes messages until the load ends.
func (w *worker) run(js jetstream.JetStream) {
	for w.ctx.Err() == nil {
		c, err := js.Consumer(w.ctx, w.stream, "W")
		if err != nil {
			time.Sleep(20 * time.Millisecond) //nolint:mnd // not at once
			continue
		}
		it, err := c.Messages(jetstream.PullMaxMessages(100), jetstream.PullExpiry(2*time.Second))
		if err != nil {
			continue
		}
		stop := context.AfterFunc(w.ctx, it.Stop)
		for {
			m, err := it.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) || w.ctx.Err() != nil {
				break
			}
			if err == nil {
				w.take(m)
			}
		}
		stop()
	}
}

// take acknowledges a message, waits until that is confirmed, and keeps account.
func (w *worker) take(m jetstream.Msg) {
	id := string(m.Data())
	s := &sight{arrived: w.tap.take(m.Reply()), at: time.Now(), reply: m.Reply()}
	w.mu.Lock()
	s.again = slices.ContainsFunc(w.seen[id], func(before *sight) bool {
		return before.confirmed() && s.arrived.After(before.answered)
	})
	w.seen[id] = append(w.seen[id], s)
	w.mu.Unlock()
	if w.refuse(id) {
		_ = m.Nak()
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
	defer cancel()
	err := m.DoubleAck(ctx) // if it is not confirmed, the message comes again
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.answered = time.Now(); err != nil {
		s.err = err.Error()
		return
	}
	w.done[id]++
}

func (s *sight) confirmed() bool { return !s.answered.IsZero() && s.err == "" }

// tell writes the history of each message that is not as it should be: it came again behind its ack, or has none.
func (l *load) tell(out io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, list := range l.seen {
		if slices.ContainsFunc(list, func(s *sight) bool { return s.again }) {
			ids = append(ids, id)
		}
	}
	for id := range l.acked {
		if l.confirmed[id] == 0 {
			ids = append(ids, id)
		}
	}
	for id := range l.jobs {
		if l.jobsDone[id] == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	const clock = "15:04:05.000"
	for _, id := range slices.Compact(ids) {
		fmt.Fprintf(out, "message %s, stored as %d\n", id, max(l.acked[id], l.jobs[id]))
		for _, s := range l.seen[id] {
			fmt.Fprintf(out, "  %s %s", s.arrived.Format(clock), s.reply)
			switch {
			case s.answered.IsZero():
				fmt.Fprint(out, " refused")
			case s.err != "":
				fmt.Fprintf(out, " not confirmed: %s", s.err)
			default:
				fmt.Fprintf(out, " confirmed %s", s.answered.Format(clock))
			}
			if s.again {
				fmt.Fprint(out, ", behind an ack")
			}
			fmt.Fprintln(out)
		}
	}
}
