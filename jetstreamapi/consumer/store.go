package consumer

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/storage"
)

// chokeRetry is the pause before a change is offered again to a full shard.
const chokeRetry = 2 * time.Millisecond

// Bounds of the changes after which a checkpoint is made: their bytes, beside twice those of the last checkpoint, so
// that checkpoints are a bounded part of what is written.
const checkpointBytes = 64 << 10

// persister makes the changes of a consumer durable, in the order of its steps. It belongs to the worker that runs the
// consumer.
type persister struct {
	c   *Consumer
	log *storage.StateLog

	checkpoint []byte // nil: none is due
	since      int    // bytes changed since the last checkpoint
	last       int    // bytes of the last checkpoint

	fault atomic.Pointer[error] // why the last try failed; nil: it did not

	choked bool // the shard was full: what follows waits
	chokes atomic.Uint64
	waits  outbox
}

// note counts a change and, when it is time, takes a checkpoint. c.mu is held.
func (p *persister) note(m *machine, changed int) {
	p.since += changed
	if changed > 0 && p.since >= checkpointBytes+2*p.last {
		p.checkpoint = m.checkpoint(make([]byte, 0, p.last+p.last/4+256))
	}
}

// save appends the changes in out and sees to it that its acks are confirmed once they are durable.
func (p *persister) save(out *outbox) {
	if len(out.delta) == 0 && len(out.confirms) == 0 {
		return
	}
	if p.try(out) {
		return
	}
	p.choked = true
	p.c.retrySoon()
	p.chokes.Add(1)
	p.waits.delta = append(p.waits.delta, out.delta...)
	p.waits.confirms = append(p.waits.confirms, out.confirms...)
	p.waits.acked = append(p.waits.acked, out.acked...)
	p.waits.then = append(p.waits.then, out.then...)
}

// try appends; false if the shard is full.
func (p *persister) try(out *outbox) bool {
	var done storage.Done
	if len(out.confirms) > 0 && len(out.delta) == 0 {
		out.delta = append(out.delta, opNothing)
	}
	if len(out.confirms) > 0 || len(out.then) > 0 {
		done = p.confirm(append([]string(nil), out.confirms...), out.then)
	}
	var err error
	if p.checkpoint != nil {
		err = p.log.Checkpoint(p.checkpoint, done)
	} else {
		err = p.log.Append(out.delta, done)
	}
	if errors.Is(err, storage.ErrFull) {
		return false
	}
	p.fault.Store(nil)
	switch {
	case err != nil:
		p.fault.Store(&err)
		if done != nil {
			done(err)
		}
	case p.checkpoint != nil:
		p.last, p.since, p.checkpoint = len(p.checkpoint), 0, nil
	}
	return true
}

// join adds the changes in out, and more behind them, to a group, commits it, and takes them out of out.
func (p *persister) join(group *storage.Batch, out *outbox, more []byte) error {
	if p.checkpoint != nil {
		group.Checkpoint(p.log, p.checkpoint)
	} else if len(out.delta) > 0 {
		group.Change(p.log, out.delta)
	}
	group.Change(p.log, more)
	var done storage.Done
	if len(out.confirms) > 0 || len(out.then) > 0 {
		done = p.confirm(append([]string(nil), out.confirms...), out.then)
	}
	if err := group.Commit(done); err != nil {
		return err
	}
	if p.checkpoint != nil {
		p.last, p.since, p.checkpoint = len(p.checkpoint), 0, nil
	}
	p.since += len(more)
	p.fault.Store(nil)
	out.delta, out.confirms, out.then = out.delta[:0], out.confirms[:0], nil
	return nil
}

// retry offers again what found the shard full; false: it still is.
func (p *persister) retry() bool {
	if !p.try(&p.waits) {
		return false
	}
	p.choked = false
	if p.c.o.Acked != nil {
		for _, seq := range p.waits.acked {
			p.c.o.Acked(seq)
		}
	}
	p.waits = outbox{}
	return true
}

// confirm returns what answers acks, and lets deliveries go, once they are durable. It runs on the ack loop and only
// posts letters.
func (p *persister) confirm(replies []string, then []*heldSends) storage.Done {
	return func(err error) {
		kind := mailConfirm
		if err != nil {
			kind = mailRefuse
		}
		for _, r := range replies {
			p.c.post(letter{kind: kind, reply: []byte(r)})
		}
		for _, h := range then {
			h.settle(err)
		}
		if len(then) > 0 {
			p.c.run.schedule()
		}
	}
}
