package consumer

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestKeySharedWaitsForTheDisk: with keys a message is sent when the record of its delivery is durable, in order with the
// statuses that come after it, and not at all if it never will be.
func TestKeySharedWaitsForTheDisk(t *testing.T) {
	disk := new(slowDisk)
	state := disk.state(t, 0)
	r := newRig(t, 1)
	c := r.start(r.options("C", server.ConsumerConfig{
		Durable: "C", AckPolicy: server.AckExplicit, MaxAckPending: 10,
		Metadata: map[string]string{KeyKeyShared: "subject"},
	}, state))
	r.subscribe("one")
	r.subscribe("two")
	r.put("a.b", "1")
	r.put("a.b", "2")

	release := disk.hold()
	c.Pull([]byte("one"), nil, []byte("1"))
	eventually(t, "the message is taken", func() bool { return c.Info().NumAckPending == 1 })
	c.Pull([]byte("two"), nil, []byte(`{"batch":1,"no_wait":true}`)) // its key is in hand
	eventually(t, "the request is over", func() bool { return c.Info().NumWaiting == 0 })
	time.Sleep(30 * time.Millisecond)
	if r.sink.Len() != 0 {
		t.Fatalf("sent before it is durable: %s", show(r.sink.Take()))
	}
	release()
	got := r.wait(2)
	if got[0].SID != "one" || got[1].SID != "two" || !bytes.HasPrefix(got[1].Msg.Header, []byte("NATS/1.0 404")) {
		t.Errorf("got %s", show(got))
	}

	c.Ack(ackID(t, got[0].Msg.Reply), nil, nil)
	eventually(t, "the ack is taken", func() bool { return c.Info().AckFloor.Stream == 1 })
	disk.fail.Store(true)
	c.Pull([]byte("one"), nil, []byte("1"))
	eventually(t, "the request is given up", func() bool { i := c.Info(); return i.NumWaiting == 0 && i.NumAckPending == 1 })
	time.Sleep(30 * time.Millisecond)
	if r.sink.Len() != 0 {
		t.Errorf("sent, and the disk does not know: %s", show(r.sink.Take()))
	}
}
