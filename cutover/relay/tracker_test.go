package relay

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// TestTrackerAckCounts: a delivery that was sent again before an ack got to the servers does not make the message
// outstanding, unless the consumer is another one since, or was told to begin anew.
func TestTrackerAckCounts(t *testing.T) {
	s := NewScope(cutover.Scope{Account: "$G", Stream: "S"}, Options{})
	created := time.Now().Add(time.Second)
	info := func(floor uint64, at time.Time) []*server.ConsumerInfo {
		i := &server.ConsumerInfo{Name: "C", Created: at, Config: &server.ConsumerConfig{AckPolicy: server.AckExplicit}}
		i.AckFloor.Stream = floor
		return []*server.ConsumerInfo{i}
	}
	offer := func(seq uint64) {
		s.tracker.delivered(&jsapi.AckSubject{Consumer: []byte("C"), StreamSeq: seq, ConsumerSeq: seq, Delivered: 1})
	}
	ack := func(seq uint64) { s.tracker.ack(&jsapi.AckSubject{Consumer: []byte("C"), StreamSeq: seq}, nil) }
	outstanding := func(want ...uint64) {
		t.Helper()
		pending, _, _ := s.Outstanding("C")
		if len(pending) != len(want) {
			t.Errorf("outstanding %v, want %v", pending, want)
		}
		for _, seq := range want {
			if _, ok := pending[seq]; !ok {
				t.Errorf("%d is not outstanding", seq)
			}
		}
	}
	s.Settle(info(0, created))
	offer(1)
	offer(2)
	ack(2)
	offer(2) // it crossed the ack
	outstanding(1)
	ack(1)
	s.Settle(info(2, created))
	offer(1) // likewise, below the floor by now
	outstanding()
	s.Settle(info(0, created.Add(time.Minute))) // another consumer of that name
	offer(1)
	outstanding(1)
	ack(1)
	s.tracker.forget([]byte("C")) // as a client asks for
	offer(1)
	outstanding(1)
	s.Seed("C", server.AckExplicit, &server.ConsumerState{Pending: map[uint64]*server.Pending{5: {Sequence: 5}}})
	s.Settle(info(0, created)) // the first word of the servers about it
	outstanding(5)
}

// stranger is a client of which the servers have not said yet who it is.
type stranger struct{}

func (stranger) ID() uint64 { return 1 }

func (stranger) Identity() (gateway.UpstreamIdentity, <-chan struct{}) {
	return gateway.UpstreamIdentity{}, make(chan struct{})
}

// TestUnnotedPublishesCount: what a client publishes right behind its CONNECT is counted, so that nobody takes it for what
// came around the gateway.
func TestUnnotedPublishesCount(t *testing.T) {
	r := New("")
	s := NewScope(cutover.Scope{Account: "$G", Stream: "S"}, Options{})
	table, err := NewTable(0, []Route{{Scope: s, Subjects: []string{"a.>"}, State: Upstream}}, false)
	if err != nil {
		t.Fatal(err)
	}
	r.Use(table)
	g := r.Attend(stranger{})
	for subject, want := range map[string]gateway.Course{"a.b": gateway.CoursePass, "b": gateway.CoursePass} {
		if course, wait := g.Up([]byte(subject), []byte("reply"), 0); course != want || wait != nil {
			t.Errorf("%s: course %v, wait %v", subject, course, wait)
		}
	}
	if n := s.Counts().Unasked; n != 1 {
		t.Errorf("%d counted", n)
	}
}
