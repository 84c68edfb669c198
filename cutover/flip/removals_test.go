package flip_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLimitsBesideAcks: where a limit keeps the latest messages of a subject and acks make room, the servers, which hear
// of an ack later, remove no message that is kept here.
func TestLimitsBesideAcks(t *testing.T) {
	r := newRig(t)
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"work": jetstream.WorkQueuePolicy, "interest": jetstream.InterestPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			k := r.newRide(t, jetstream.StreamConfig{Retention: retention, MaxMsgsPerSubject: 2})
			k.watch()
			c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute})
			k.move()
			k.put(1, "a", "kept")
			held, _ := k.fetch(c, 1)
			for range 30 {
				k.put(1, "a", "done")
				list, seqs := k.fetch(c, 1)
				k.ack(list[0], seqs[0])
			}
			k.move()
			k.alike()
			if len(held) != 1 || held[0].DoubleAck(t.Context()) != nil {
				t.Error("what was held since is not there any more")
			}
		})
	}
}
