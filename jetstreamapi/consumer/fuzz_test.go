package consumer

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// FuzzState reads damaged checkpoints and changes: an error, or a state that holds together; never a panic.
func FuzzState(f *testing.F) {
	set := newSettings("S", "C", server.ConsumerConfig{AckPolicy: server.AckExplicit, AckWait: 1000}, 0, 0)
	log := newLog(f)
	m := newMachine(set, 1)
	m.w = &logWorld{Cursor: log.NewCursor(3, nil), log: log}
	m.skip.loaded = []uint64{7, 9}
	for _, seq := range []uint64{2, 3, 5} {
		m.log.delivered(100, m.led.last.stream, seq)
		m.led.add(seq, 100, 1100)
	}
	m.led.queue(m.led.head)
	m.led.exhaust(m.led.tail)
	state := m.checkpoint(nil)
	m.log.acked(5, 2)
	m.log.redelivered(200, 5, 3, 2)
	m.log.postponed(5, 3, 900)
	m.log.progressed(300, 5, 3)
	m.log.queued(5, 3)
	m.log.exhausted(5, 3)
	m.log.forgot(5, 5)
	m.log.ackedUpTo(5, seqPair{3, 5})
	m.log.resetTo(4)
	m.log.op(opNothing)
	f.Add(state, m.log.swap(nil))
	f.Fuzz(func(t *testing.T, state, change []byte) {
		m := newMachine(set, 1)
		if m.restore(state) != nil || m.replay(change) != nil {
			return
		}
		n, queued, redelivered := 0, 0, 0
		var prev *entry
		for e := m.led.head; e != nil; prev, e = e, e.next {
			n++
			if e.queued {
				queued++
			}
			if e.count > 1 {
				redelivered++
			}
			if e.sseq > m.led.last.stream || prev != nil && prev.sseq >= e.sseq || m.led.bySeq[e.sseq] != e ||
				e.queued && e.heapIndex >= 0 {
				t.Fatalf("broken at message %d: %s", e.sseq, m.dump())
			}
		}
		if n != m.led.len() || queued != m.led.queued || redelivered != m.led.redelivered || len(m.led.heap) > n {
			t.Fatalf("the counts are wrong: %d %d %d: %s", n, queued, redelivered, m.dump())
		}
		m.clamp(3)
	})
}
