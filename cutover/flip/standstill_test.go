package flip_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// TestStandstill: since when the chain stands still is told from the first failure on, however often it is tried again:
// else the alert about it would never fire.
func TestStandstill(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	js, err := r.conn.JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}})
	check(t, err)
	up := r.own.Stream("S")
	info, err := up.Info(ctx)
	check(t, err)
	copied, err := r.svc.Cutover().Create(ctx, "$G", &info.Config, info.Created, 1)
	check(t, err)
	apply := func(seq uint64) {
		t.Helper()
		_, _, err := copied.Apply([]cutover.Record{{Seq: seq, Subject: []byte("s"), Time: time.Now().UnixNano()}})
		check(t, err)
		check(t, copied.Durable(ctx, seq))
	}
	apply(1)
	chain := reverse.NewChain(r.own.NATS(), copied, up, "S", 1, slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- chain.Run(running) }()
	defer func() { stop(); <-ended }()
	await := func(what string, is func(reverse.Status) bool) reverse.Status {
		t.Helper()
		for !is(chain.Status()) {
			if ctx.Err() != nil {
				t.Fatalf("%s: %+v", what, chain.Status())
			}
			time.Sleep(5 * time.Millisecond)
		}
		return chain.Status()
	}
	await("all is there", func(s reverse.Status) bool { return s.Position == 1 })
	idle := time.Now()
	r.nats.Shutdown()
	r.nats.WaitForShutdown()
	apply(2)
	first := await("it has failed", func(s reverse.Status) bool { return s.Err != nil })
	if first.Since.Before(idle) {
		t.Errorf("it stood still %v before there was something to do", idle.Sub(first.Since))
	}
	time.Sleep(1500 * time.Millisecond) // several attempts
	if again := chain.Status(); !again.Since.Equal(first.Since) || again.Err == nil {
		t.Errorf("since %v, then since %v: %v", first.Since, again.Since, again.Err)
	}
}
