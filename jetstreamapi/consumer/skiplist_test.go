package consumer

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestRemovedWhileDelivered: a message that leaves the log after it was read and before it is given is given all the
// same, those after it are not lost, and the numbers of pending messages are the truth.
func TestRemovedWhileDelivered(t *testing.T) {
	for _, policy := range []server.DeliverPolicy{server.DeliverAll, server.DeliverLastPerSubject} {
		t.Run(policy.String(), func(t *testing.T) {
			log := newLog(t)
			h := newModel(t, log, server.ConsumerConfig{
				Durable: "C", AckPolicy: server.AckExplicit, AckWait: time.Minute, DeliverPolicy: policy,
				FilterSubject: ">",
			}, "a.x", "a.y").harness
			h.listen("in0")
			h.put("a.x", "data")
			for seq := uint64(1); seq <= 3; seq++ {
				h.m.begin(h.now)
				h.m.out = new(outbox)
				h.m.pull(h.now, []byte("in0"), []byte(`{"batch":1}`))
				c, why := h.m.next(h.now)
				if why != ready || c.rec.Seq != seq {
					t.Fatalf("message %d: got %d, standing %d", seq, c.rec.Seq, why)
				}
				h.remove(seq)
				if why := h.m.offer(h.now, &c); why != ready || len(h.m.out.sends) != 1 {
					t.Fatalf("message %d was not sent: standing %d", seq, why)
				}
				if a, want := ackID(t, h.m.out.sends[0].reply), 3-seq; a.Pending != want || h.m.numPending() != want {
					t.Errorf("message %d says %d are pending, the consumer %d; want %d", seq, a.Pending, h.m.numPending(), want)
				}
			}
		})
	}
}
