package consumer

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// offWorld is a world that counts wrongly what is pending, until it is told to count anew.
type offWorld struct {
	*logWorld
	by uint64
}

func (w *offWorld) Pending() uint64 { return w.logWorld.Pending() + w.by }

func (w *offWorld) Seek(from uint64) {
	w.by = 0
	w.logWorld.Seek(from)
}

// TestAudit: books that are right are found so, whatever goes on, and each that is not is found and named.
func TestAudit(t *testing.T) {
	r := newRig(t, 2)
	r.subscribe("inbox")
	cfg := server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, AckWait: time.Hour, FilterSubject: "a.*"}
	c := r.consumer("C", cfg)
	for i := range 10 {
		r.put("a.b", fmt.Sprint(i))
		r.put("other", "")
	}
	c.Pull([]byte("inbox"), nil, []byte("5"))
	got := r.wait(5)
	c.Ack(ackID(t, got[1].Msg.Reply), []byte("-NAK"), nil)
	c.Ack(ackID(t, got[2].Msg.Reply), nil, nil)
	eventually(t, "the ack has come", func() bool { return c.Info().NumAckPending == 4 })
	right := func() {
		t.Helper()
		if err := c.Audit(); err != nil {
			t.Error(err)
		}
	}
	wrong := func(what string) {
		t.Helper()
		if err := c.Audit(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	right()

	c.mu.Lock()
	c.m.w = &offWorld{c.world, 3}
	c.mu.Unlock()
	wrong("8 messages from 10 on were taken for pending, there are 5")
	if n := c.Info().NumPending; n != 5 {
		t.Errorf("%d pending after the audit", n)
	}
	right()

	spoil := func(what string, change, back func(*ledger)) {
		t.Helper()
		c.mu.Lock()
		change(c.m.led)
		c.mu.Unlock()
		wrong(what)
		c.mu.Lock()
		back(c.m.led)
		c.mu.Unlock()
		right()
	}
	head := c.m.led.head
	spoil("counted {4 1 0 0}, kept {4 1 0 1}", func(l *ledger) { l.redelivered++ }, func(l *ledger) { l.redelivered-- })
	spoil("message 1 is outstanding between 3", func(l *ledger) { l.floor.stream += 3 }, func(l *ledger) { l.floor.stream -= 3 })
	spoil("not known", func(l *ledger) { l.bySeq[1] = nil }, func(l *ledger) { l.bySeq[1] = head })
	spoil("two things", func(*ledger) { head.parked = true }, func(*ledger) { head.parked = false })
	spoil("wait for their time", func(l *ledger) { l.parked = 9 }, func(l *ledger) { l.parked = 0 })
}

// TestAuditsAmongEvents: no audit is disturbed by what happens meanwhile.
func TestAuditsAmongEvents(t *testing.T) {
	r := newRig(t, 2)
	r.subscribe("inbox")
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, AckWait: 20 * time.Millisecond})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := c.Audit(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 300 {
		r.put("a.b", fmt.Sprint(i))
		c.Pull([]byte("inbox"), nil, []byte("1"))
		for _, g := range r.wait(1) {
			if i%3 > 0 {
				c.Ack(ackID(t, g.Msg.Reply), nil, nil)
			}
		}
		if i%7 == 0 {
			if _, err := r.stream.Log().Delete([]uint64{uint64(i/2 + 1)}, false, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}
