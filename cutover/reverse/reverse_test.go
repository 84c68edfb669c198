package reverse

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

func TestSequenceOf(t *testing.T) {
	for reply, want := range map[string]uint64{
		"$JS.ACK.S.C.1.17.5.1700000000000000000.0":            17,
		"$JS.ACK._.hash.S.C.1.17.5.1700000000000000000.0":     17,
		"$JS.ACK.dom.hash.S.C.1.17.5.1700000000000000000.0.x": 17,
		"$JS.FC.S.C.abcd":                       0,
		"_INBOX.a.b.c.d.17.f.g.h":               0,
		"":                                      0,
		"$JS.ACK.S.C.1.many.5.17000000000000.0": 0,
	} {
		if got, ok := sequenceOf(reply); got != want || ok != (want > 0) {
			t.Errorf("%s: %d %v", reply, got, ok)
		}
	}
	g := Ghosts{stream: "S"}
	if got, ok := sequenceOf(g.ackSubject("C", 17, 5)); got != 17 || !ok {
		t.Errorf("of our own: %d %v", got, ok)
	}
}

func consumerAt(floor, delivered uint64, pending, exhausted []uint64) *cutover.ConsumerCopy {
	c := &cutover.ConsumerCopy{Name: "C"}
	c.State.AckFloor.Stream, c.State.Delivered.Stream = floor, delivered
	c.State.Pending, c.State.Redelivered = map[uint64]*server.Pending{}, map[uint64]uint64{}
	for _, seq := range pending {
		c.State.Pending[seq] = &server.Pending{Sequence: seq}
		c.State.Redelivered[seq] = 1
	}
	for _, seq := range exhausted {
		c.State.Redelivered[seq] = 3
	}
	return c
}

// TestDone: what is outstanding, was delivered as often as it may be, or was not delivered, is not done.
func TestDone(t *testing.T) {
	c := consumerAt(10, 20, []uint64{11, 15}, []uint64{17})
	var got []uint64
	for seq := uint64(9); seq <= 22; seq++ {
		if done(c, seq) {
			got = append(got, seq)
		}
	}
	if want := "[9 10 12 13 14 16 18 19 20]"; fmt.Sprint(got) != want {
		t.Errorf("done %v, want %s", got, want)
	}
	info := &server.ConsumerInfo{}
	for delivered, want := range map[uint64]int{10: 0, 11: 1, 16: 2, 17: 3, 100: 3} {
		info.Delivered.Stream = delivered
		if got := outstanding(c, info); got != want {
			t.Errorf("%d delivered upstream: %d outstanding, want %d", delivered, got, want)
		}
	}
}

// TestSameKnowsWhatTheChainChanges: a record that the chain has published is the same though it has less of its time to
// live left there; anything else is another one.
func TestSameKnowsWhatTheChainChanges(t *testing.T) {
	record := func(subject, header, data string) *cutover.Record {
		return &cutover.Record{Subject: []byte(subject), Header: []byte(header), Data: []byte(data)}
	}
	ours := record("a", "NATS/1.0\r\nNats-TTL: 1h\r\nNats-Batch-Id: x\r\nA: 1\r\n\r\n", "x")
	theirs := "NATS/1.0\r\nEhdb-Origin: 7\r\nNats-Expected-Last-Sequence: 4\r\nA: 1\r\nNats-TTL: 59m0s\r\n\r\n"
	if !same(ours, record("a", theirs, "x")) {
		t.Error("what the chain has published is taken for another one")
	}
	for _, other := range []*cutover.Record{
		record("b", theirs, "x"), record("a", theirs, "y"), record("a", "NATS/1.0\r\nA: 2\r\n\r\n", "x"), record("a", "", "x"),
	} {
		if same(ours, other) {
			t.Errorf("%s %q %s is taken for the same", other.Subject, other.Header, other.Data)
		}
	}
}

func TestRemaining(t *testing.T) {
	now := time.Unix(1000, 0)
	since := now.Add(-10 * time.Second).UnixNano()
	for ttl, want := range map[string]string{
		"60": "50s", "1m": "50s", "5s": "1s", "never": "", "0": "", "x": "", "-1": "",
	} {
		if got := remaining(ttl, since, now); got != want {
			t.Errorf("%s: %q, want %q", ttl, got, want)
		}
	}
}

func TestDiffers(t *testing.T) {
	a := server.StreamConfig{Name: "S", Storage: server.FileStorage, Subjects: []string{"a"}, Metadata: map[string]string{"_nats.ver": "1", "mine": "x"}}
	b := a
	b.Metadata = map[string]string{"mine": "x"}
	if d := Differs(&a, &b); len(d) > 0 {
		t.Errorf("what a server says of itself: %v", d)
	}
	b.Subjects, b.MaxMsgs, b.Metadata = []string{"a", "b"}, 5, nil
	if d := Differs(&a, &b); fmt.Sprint(d) != "[max_msgs metadata subjects]" {
		t.Errorf("%v", d)
	}
}
