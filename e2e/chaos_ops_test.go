package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// chaosOp is one operation.
type chaosOp struct {
	after  time.Duration // the one before
	what   string
	stream string // that it is about
	n      int    // whatever it needs: which, how long
	amid   string // of a move: what fails in the middle of it
}

// chaosKinds are the operations, each as often as it is to be.
var chaosKinds = []struct {
	what  string
	times int
}{
	{"flip", 20},
	{"rollback", 14},
	{"canary", 5},
	{"canary end", 3},
	{"pause", 2},
	{"resume", 3},
	{"postpone", 4},
	{"drill", 1},
	{"purge", 3},
	{"delete", 4},
	{"configure", 4},
	{"consumer", 4},
	{"consumer end", 3},
	{"consumer pause", 2},
	{"kill gateway", 1},
	{"kill nats", 1},
	{"cut", 4},
	{"restart", 1},
	{"stop gateway", 1},
	{"stop nats", 1},
}

// amid is what fails in the middle of some moves.
var amid = []string{"kill gateway", "kill nats", "stop gateway", "stop nats", "cut", "cut"}

// planChaos draws the operations of a run.
func planChaos(rng *rand.Rand, length time.Duration) (plan []chaosOp) {
	var bag []string
	for _, k := range chaosKinds {
		for range k.times {
			bag = append(bag, k.what)
		}
	}
	streams := []string{"ORDERS", "JOBS", "EVENTS", "CAS", "KV_V", "ORDERS", "JOBS"}
	after := 500 * time.Millisecond
	for at := after; at < length; at += after {
		op := chaosOp{after: after, what: bag[rng.IntN(len(bag))], stream: streams[rng.IntN(len(streams))], n: rng.IntN(1000)}
		if op.what == "flip" || op.what == "rollback" {
			if n := rng.IntN(4 * len(amid)); n < len(amid) {
				op.amid = amid[n]
			}
		}
		plan = append(plan, op)
		after = time.Duration(50+rng.IntN(1000)) * time.Millisecond
	}
	return plan
}

func newLock() *sync.Mutex { return new(sync.Mutex) }

// do begins an operation. Moves go on beside the next ones.
func (c *chaos) do(op *chaosOp) {
	c.t.Helper()
	actor := map[string]any{"by": "test", "reason": "chaos", "scope": "$G/" + op.stream}
	switch op.what {
	case "flip", "rollback", "postpone", "canary", "canary end", "drill":
		c.begin(op, actor)
	case "pause", "resume":
		c.tell(op, c.gw.Load().ask(http.MethodPost, "/"+op.what, actor, new(any)))
	case "purge", "delete", "configure":
		c.tell(op, c.change(op))
	case "consumer", "consumer end", "consumer pause":
		c.tell(op, c.changeConsumer(op))
	default:
		c.fail(op)
	}
}

func (c *chaos) tell(op *chaosOp, err error) {
	said := "done"
	if err != nil {
		said = strings.Join(strings.Fields(err.Error()), " ")
	}
	c.note("%s %s %d: %s", op.what, op.stream, op.n, said)
}

// begin does beside the others what may take its time.
func (c *chaos) begin(op *chaosOp, actor map[string]any) {
	turn := c.moving[op.stream]
	if !turn.TryLock() {
		return
	}
	c.moves.Go(func() {
		defer turn.Unlock()
		b := c.gw.Load()
		var m face.Move
		var err error
		switch op.what {
		case "flip":
			actor["retries"], actor["force"] = 3, forced
			if err = c.retry(8*time.Second, func() error { return c.gates(op.stream) }); err == nil {
				err = c.troubled(op, func() error { return c.gw.Load().ask(http.MethodPost, "/flip", actor, &m) })
			}
		case "rollback":
			if s, failure := b.stream(op.stream); failure != nil || s.Authority != "ehdb" {
				return
			}
			err = c.troubled(op, func() error { return b.ask(http.MethodPost, "/rollback", actor, &m) })
		case "postpone":
			actor["postpone"], actor["force"] = true, forced
			if err = b.ask(http.MethodPost, "/flip", actor, &m); err != nil {
				break
			}
			verb := "/flip/go"
			if op.n%3 == 0 {
				verb = "/flip/abort"
			}
			time.Sleep(time.Duration(op.n) * time.Millisecond)
			delete(actor, "postpone")
			delete(actor, "force")
			err = b.ask(http.MethodPost, verb, actor, &m)
		case "canary", "canary end":
			if op.stream != "ORDERS" && op.stream != "JOBS" {
				return
			}
			actor["consumer"], actor["remove"] = "W", op.what == "canary end"
			err = b.ask(http.MethodPost, "/canary", actor, new(any))
		case "drill":
			actor["kind"], actor["scope"] = "flip-and-back", "$G/ORDERS"
			err = b.ask(http.MethodPost, "/drill", actor, new(any))
		}
		if err == nil && (op.what == "flip" || op.what == "rollback" || op.what == "postpone") {
			c.moved.Add(1)
		}
		c.tell(op, err)
	})
}

// troubled moves a stream, while something fails.
func (c *chaos) troubled(op *chaosOp, move func() error) error {
	if op.amid == "" {
		return move()
	}
	c.moves.Go(func() {
		time.Sleep(time.Duration(op.n/2) * time.Millisecond)
		c.fail(&chaosOp{what: op.amid, stream: op.stream, n: op.n / 3})
	})
	return move()
}

// retry tries for a while: gates take their time.
func (c *chaos) retry(most time.Duration, try func() error) error {
	for end := time.Now().Add(most); ; time.Sleep(100 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(end) || c.ctx.Err() != nil {
			return err
		}
	}
}

// gates is which gates, of those that are not done without, do not let a stream be flipped.
func (c *chaos) gates(stream string) error {
	var r gate.Report
	if err := c.gw.Load().ask(http.MethodGet, "/gates?scope=$G/"+stream, nil, &r); err != nil {
		return err
	}
	var errs []error
	for _, g := range r.Gates {
		if forced[g.ID] == "" && g.State != gate.Pass && g.State != gate.NotApplicable {
			errs = append(errs, fmt.Errorf("gate %s is %s: %s", g.ID, g.State, g.Reason))
		}
	}
	if len(errs) > 0 {
		var found any
		if err := c.gw.Load().ask(http.MethodGet, "/diff/findings?limit=5&scope=$G/"+stream, nil, &found); err == nil {
			errs = append(errs, fmt.Errorf("findings: %v", found))
		}
	}
	return errors.Join(errs...)
}

// change is what a client may ask of a stream.
func (c *chaos) change(op *chaosOp) error {
	s := c.streams["ORDERS"]
	ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
	defer cancel()
	switch op.what {
	case "configure":
		c.mu.Lock()
		c.changes++
		n := c.changes
		c.mu.Unlock()
		_, err := c.js.UpdateStream(ctx, c.orders(n))
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.config = n
		c.mu.Unlock()
		if n%2 == 1 { // what it stores since now is stored by whoever has the say
			id := fmt.Sprintf("extra %d", n)
			s.sending(id)
			ack, err := c.js.Publish(ctx, "extra.x", []byte(id), jetstream.WithMsgID(id))
			if err == nil {
				s.published(c, id, ack.Sequence)
			}
			return err
		}
		return nil
	case "delete":
		last := s.begun()
		if last == 0 {
			return nil
		}
		seq := 1 + uint64(op.n)*last/1000
		s.mu.Lock()
		s.removed[seq] = true
		s.mu.Unlock()
		js, err := c.js.Stream(ctx, "ORDERS")
		if err != nil {
			return err
		}
		return js.DeleteMsg(ctx, seq)
	}
	to := s.begun() * uint64(op.n) / 2000
	s.mu.Lock()
	s.purged = max(s.purged, to)
	s.mu.Unlock()
	js, err := c.js.Stream(ctx, "ORDERS")
	if err != nil {
		return err
	}
	if err := js.Purge(ctx, jetstream.WithPurgeSequence(to+1)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = max(s.gone, to)
	return nil
}

// changeConsumer is what a client may ask about consumers.
func (c *chaos) changeConsumer(op *chaosOp) error {
	ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
	defer cancel()
	name := fmt.Sprintf("T%d", op.n%3)
	switch op.what {
	case "consumer":
		cons, err := c.js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
			Durable: name, AckWait: chaosWait, Description: fmt.Sprint(op.n), MaxAckPending: 100 + op.n,
		})
		if err != nil {
			return err
		}
		batch, err := cons.Fetch(5, jetstream.FetchMaxWait(chaosFetch))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			_ = m.Ack()
		}
		return batch.Error()
	case "consumer pause":
		_, err := c.js.PauseConsumer(ctx, "ORDERS", "W", time.Now().Add(time.Duration(op.n)*time.Millisecond))
		return err
	}
	if err := c.js.DeleteConsumer(ctx, "ORDERS", name); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	return nil
}

// fail brings a failure about.
func (c *chaos) fail(op *chaosOp) {
	c.t.Helper()
	if op.what == "restart" {
		c.moves.Wait()
	}
	c.failing.Lock()
	defer c.failing.Unlock()
	b, length := c.gw.Load(), time.Duration(1000+op.n*3)*time.Millisecond
	switch op.what {
	case "cut":
		c.wire.cut(op.n)
	case "kill gateway":
		b.Kill()
		c.keepLog(b)
		time.Sleep(time.Duration(op.n/4) * time.Millisecond)
		c.start("shadow")
	case "kill nats":
		c.killed.note()
		c.nats.kill()
		time.Sleep(time.Duration(op.n/4) * time.Millisecond)
		c.nats.start()
		c.nats.healthy()
	case "stop gateway":
		b.Signal(syscall.SIGSTOP)
		time.Sleep(length)
		b.Signal(syscall.SIGCONT)
	case "stop nats":
		noErr(c.t, c.nats.cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(length)
		noErr(c.t, c.nats.cmd.Process.Signal(syscall.SIGCONT))
	case "restart":
		for _, mode := range []string{[]string{"nats", "ehdb"}[op.n%2], "shadow"} {
			b := c.gw.Load()
			_ = b.Stop()
			c.keepLog(b)
			c.start(mode)
			c.note("in mode %s", mode)
			time.Sleep(length / 4)
		}
	}
	c.tell(op, nil)
}

// keepLog puts the log of a gateway that has ended into the test's, if something was wrong by then.
func (c *chaos) keepLog(b *before) {
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("log of a gateway:\n%s", b.Log())
		}
	})
}

// calm ends the failures: everything runs, and nothing waits for a word.
func (c *chaos) calm() {
	c.t.Helper()
	c.moves.Wait()
	until(c.t, "nothing is paused", time.Minute, func() error {
		ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
		defer cancel()
		_, err := c.js.ResumeConsumer(ctx, "ORDERS", "W")
		for stream := range c.chaosScopes() {
			_ = c.gw.Load().ask(http.MethodPost, "/resume", map[string]any{"by": "test", "scope": "$G/" + stream}, new(any))
		}
		return err
	})
	c.note("calm: %d moves", c.moved.Load())
}
