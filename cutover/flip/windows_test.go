package flip_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestWindowsOverAMove: what lasts for a while lasts as long wherever the stream is when it ends.
func TestWindowsOverAMove(t *testing.T) {
	r := newRig(t)
	begin := func(t *testing.T, cfg jetstream.ConsumerConfig) (*ride, jetstream.Consumer) {
		t.Helper()
		k := r.newRide(t, jetstream.StreamConfig{})
		k.watch()
		cfg.Durable, cfg.AckPolicy = "C", jetstream.AckExplicitPolicy
		return k, k.consumer(cfg)
	}
	// due fetches until something comes, and requires that it does so between two times from since on.
	due := func(k *ride, c jetstream.Consumer, seq uint64, since time.Time, least, most time.Duration) jetstream.Msg {
		k.Helper()
		m, err := c.Next(jetstream.FetchMaxWait(most + time.Second - time.Since(since)))
		took := time.Since(since)
		if err != nil {
			k.Fatalf("%d did not come within %v: %v", seq, took, err)
		}
		if got := k.took(m); got != seq || took < least || took > most {
			k.Errorf("%d came after %v, not %d after %v to %v", got, took.Round(time.Millisecond), seq, least, most)
		}
		return m
	}
	const slack = 800 * time.Millisecond
	cases := map[string]func(t *testing.T){
		"backoff, rolled back in its second wait": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.ConsumerConfig{BackOff: []time.Duration{500 * time.Millisecond, 3 * time.Second}, MaxDeliver: 10})
			k.move()
			k.put(1, "a", "x")
			since := time.Now()
			due(k, c, 1, since, 0, slack)
			due(k, c, 1, since, 450*time.Millisecond, 500*time.Millisecond+slack)
			since = time.Now()
			k.move()
			due(k, c, 1, since, 2900*time.Millisecond, 3*time.Second+slack)
		},
		"backoff, flipped in its second wait": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.ConsumerConfig{BackOff: []time.Duration{500 * time.Millisecond, 3 * time.Second}, MaxDeliver: 10})
			k.put(1, "a", "x")
			since := time.Now()
			due(k, c, 1, since, 0, slack)
			due(k, c, 1, since, 450*time.Millisecond, 500*time.Millisecond+slack)
			since = time.Now()
			k.move()
			due(k, c, 1, since, 2900*time.Millisecond, 3*time.Second+slack)
		},
		"ack wait, there and back": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second})
			k.put(1, "a", "x")
			since := time.Now()
			due(k, c, 1, since, 0, slack)
			k.move()
			k.move()
			m := due(k, c, 1, since, 1900*time.Millisecond, 2*time.Second+slack)
			since = time.Now()
			time.Sleep(500 * time.Millisecond)
			check(t, m.InProgress())
			check(t, k.nc.Flush())
			k.move()
			due(k, c, 1, since, 2400*time.Millisecond, 2500*time.Millisecond+slack)
		},
		"refused for a while on both sides": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.ConsumerConfig{AckWait: 500 * time.Millisecond})
			k.put(1, "a", "x")
			m := due(k, c, 1, time.Now(), 0, slack)
			since := time.Now()
			check(t, m.NakWithDelay(3*time.Second))
			check(t, k.nc.Flush())
			k.move()
			k.move()
			due(k, c, 1, since, 2900*time.Millisecond, 3*time.Second+slack)
		},
	}
	var all sync.WaitGroup
	defer all.Wait()
	for name, body := range cases {
		all.Go(func() { t.Run(name, body) })
	}
}

// TestPublishedTwiceAroundAMove: what was published with a message id before a fence and again behind it is stored once,
// in both directions, also where the answer to the first was given in the fence.
func TestPublishedTwiceAroundAMove(t *testing.T) {
	r := newRig(t)
	k := r.newRide(t, jetstream.StreamConfig{Duplicates: time.Minute})
	k.watch()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var n atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			var last [3]*jetstream.PubAck
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				ack, err := k.js.Publish(t.Context(), k.subject("a"), []byte(id), jetstream.WithMsgID(id))
				if err != nil || ack.Duplicate {
					t.Errorf("%s: %+v, %v", id, ack, err)
					return
				}
				if was := last[i%3]; was != nil {
					id := fmt.Sprintf("%d-%d", w, i-3)
					again, err := k.js.Publish(t.Context(), k.subject("a"), []byte(id), jetstream.WithMsgID(id))
					if err != nil || !again.Duplicate || again.Sequence != was.Sequence {
						t.Errorf("%s again: %+v, %v; it was %+v", id, again, err, was)
						return
					}
				}
				last[i%3] = ack
				n.Add(1)
			}
		})
	}
	for range 6 {
		time.Sleep(200 * time.Millisecond)
		k.move()
	}
	cancel()
	wg.Wait()
	info, err := k.stream.Info(t.Context())
	check(t, err)
	if info.State.Msgs != uint64(n.Load()) {
		t.Errorf("%d messages, %d published", info.State.Msgs, n.Load())
	}
}

// TestExpectationsInAFence: of writers that compare and set, each of whose updates may be held in a fence, exactly one wins
// each revision, and no update is lost.
func TestExpectationsInAFence(t *testing.T) {
	r := newRig(t)
	k := r.newRide(t, jetstream.StreamConfig{MaxMsgsPerSubject: 3, AllowDirect: true})
	k.watch()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var won, lost atomic.Int64
	for range 4 {
		nc := k.connect()
		js, err := jetstream.New(nc)
		check(t, err)
		wg.Go(func() {
			for ctx.Err() == nil {
				value, seq := 0, uint64(0)
				m, err := k.stream.GetLastMsgForSubject(t.Context(), k.subject("n"))
				switch {
				case errors.Is(err, jetstream.ErrMsgNotFound):
				case err != nil:
					t.Errorf("get: %v", err)
					return
				default:
					seq = m.Sequence
					if _, err := fmt.Sscan(string(m.Data), &value); err != nil {
						t.Errorf("value %q", m.Data)
						return
					}
				}
				_, err = js.Publish(t.Context(), k.subject("n"), fmt.Append(nil, value+1), jetstream.WithExpectLastSequencePerSubject(seq))
				api, told := errors.AsType[*jetstream.APIError](err)
				switch {
				case err == nil:
					won.Add(1)
				case told && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
					lost.Add(1)
				default:
					t.Errorf("update: %v", err)
					return
				}
			}
		})
	}
	for range 6 {
		time.Sleep(200 * time.Millisecond)
		k.move()
	}
	cancel()
	wg.Wait()
	m, err := k.stream.GetLastMsgForSubject(t.Context(), k.subject("n"))
	check(t, err)
	if string(m.Data) != fmt.Sprint(won.Load()) {
		t.Errorf("the value is %s, %d updates have won and %d lost", m.Data, won.Load(), lost.Load())
	}
}

// TestIDAgainWhileTheServersAreSlow: a message id that may be used again here, since its window is over, may not be used
// yet where the servers got to know of it later. The way back is open again once it may.
func TestIDAgainWhileTheServersAreSlow(t *testing.T) {
	x := newCrossing(t, jetstream.LimitsPolicy)
	x.stop()
	x.running.Wait()
	s, err := x.js.Stream(t.Context(), "ORDERS")
	check(t, err)
	cfg := s.CachedInfo().Config
	cfg.Duplicates = time.Second
	_, err = x.js.UpdateStream(t.Context(), cfg)
	check(t, err)
	x.bring(flip.PhaseEHDB)
	check(t, x.nats.cmd.Process.Signal(syscall.SIGSTOP))
	first, err := x.js.Publish(t.Context(), "orders.x", nil, jetstream.WithMsgID("X"))
	check(t, err)
	time.Sleep(1500 * time.Millisecond)
	again, err := x.js.Publish(t.Context(), "orders.x", nil, jetstream.WithMsgID("X"))
	check(t, err)
	check(t, x.nats.cmd.Process.Signal(syscall.SIGCONT))
	if again.Duplicate || again.Sequence != first.Sequence+1 {
		t.Fatalf("%+v, then %+v", first, again)
	}
	x.bring(flip.PhaseShadow)
	nc, err := nats.Connect(x.natsURL)
	check(t, err)
	defer nc.Close()
	js, err := nc.JetStream()
	check(t, err)
	if m, err := js.GetMsg("ORDERS", again.Sequence); err != nil || m.Header.Get(nats.MsgIdHdr) != "X" {
		t.Errorf("the servers have %v, %v", m, err)
	}
}
