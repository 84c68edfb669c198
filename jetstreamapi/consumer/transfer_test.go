package consumer

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A consumer that is given the state of another goes on where that was: counts, deadlines and all.
func TestImportGoesOn(t *testing.T) {
	r := newRig(t, 1)
	r.subscribe("inbox")
	for i := range 6 {
		r.put("a.b", fmt.Sprint(i))
	}
	o := r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, AckWait: time.Hour}, nil)
	now := time.Now().UnixNano()
	s := State{
		Delivered: Position{9, 4}, AckFloor: Position{2, 1}, LastDelivered: 5, LastAcked: 6,
		Pending: []PendingState{
			{Stream: 2, Consumer: 3, Deliveries: 3, FirstSent: 1, LastSent: 2, Due: now + int64(time.Hour)},
			{Stream: 4, Consumer: 5, Deliveries: 1, FirstSent: 3, LastSent: 4, Due: now + int64(time.Hour)},
		},
		Requeued: []uint64{4},
	}
	if err := Import(o.State, &s, nil); err != nil {
		t.Fatal(err)
	}
	if err := Import(o.State, &s, nil); !errors.Is(err, errNotNew) {
		t.Errorf("a second import: %v", err)
	}
	c := r.start(o)
	got := c.State()
	s.Next = 5
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", s); g != w {
		t.Errorf("state\n%s\nwant\n%s", g, w)
	}
	if i := c.Info(); i.NumPending != 2 || i.NumAckPending != 2 || i.NumRedelivered != 1 || i.Delivered.Consumer != 9 {
		t.Errorf("info %+v", i)
	}
	c.Pull([]byte("inbox"), nil, []byte("3"))
	var seen string
	for _, m := range r.wait(3) {
		id := ackID(t, m.Msg.Reply)
		seen += fmt.Sprintf("%d(x%d as %d) ", id.StreamSeq, id.Delivered, id.ConsumerSeq)
	}
	if seen != "4(x2 as 10) 5(x1 as 11) 6(x1 as 12) " {
		t.Errorf("delivered %s", seen)
	}
}

func TestImportRefuses(t *testing.T) {
	r := newRig(t, 1)
	p := func(stream, consumer uint64) PendingState {
		return PendingState{Stream: stream, Consumer: consumer, Deliveries: 1, Due: 1}
	}
	at := Position{5, 5}
	for name, s := range map[string]State{
		"floor above":      {Delivered: at, AckFloor: Position{5, 6}},
		"consumer floor":   {Delivered: at, AckFloor: Position{6, 5}},
		"below the floor":  {Delivered: at, AckFloor: Position{2, 2}, Pending: []PendingState{p(2, 3)}},
		"above the last":   {Delivered: at, Pending: []PendingState{p(6, 5)}},
		"out of order":     {Delivered: at, Pending: []PendingState{p(3, 3), p(2, 4)}},
		"deliveries order": {Delivered: at, Pending: []PendingState{p(2, 4), p(3, 3)}},
		"twice":            {Delivered: at, Pending: []PendingState{p(3, 3), p(3, 4)}},
		"no deadline":      {Delivered: at, Pending: []PendingState{{Stream: 1, Consumer: 1, Deliveries: 1}}},
		"no delivery":      {Delivered: at, Pending: []PendingState{{Stream: 1, Consumer: 1, Due: 1}}},
		"requeued":         {Delivered: at, Requeued: []uint64{1}},
		"requeued twice":   {Delivered: at, Pending: []PendingState{p(1, 1)}, Requeued: []uint64{1, 1}},
		"exhausted":        {Delivered: at, Pending: []PendingState{p(1, 1)}, Exhausted: []ExhaustedData{{1, 2}}},
		"exhausted later":  {Delivered: at, Exhausted: []ExhaustedData{{6, 2}}},
		"unsorted":         {Delivered: at, First: []uint64{2, 1}},
		"time":             {Delivered: at, LastAcked: -1},
	} {
		log, err := r.store.CreateStateLog(0, name, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := Import(log, &s, nil); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
		if err := log.Load(func([]byte, bool) error { return errNotNew }); err != nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestImportPassedOver: what was passed over for its key comes through State, and through the form of nats-server, as
// something that was never delivered.
func TestImportPassedOver(t *testing.T) {
	cfg := server.ConsumerConfig{
		AckPolicy: server.AckExplicit, AckWait: time.Second, MaxDeliver: 1, Metadata: map[string]string{KeyKeyShared: "subject"},
	}
	s := State{
		Delivered: Position{5, 9}, AckFloor: Position{4, 4},
		Pending: []PendingState{
			{Stream: 5, Consumer: 5, Deliveries: 1, FirstSent: 7, LastSent: 7, Due: 1e9 + 7},
			{Stream: 6, Consumer: 6, FirstSent: 7, LastSent: 7, Due: never},
			{Stream: 8, Consumer: 6, FirstSent: 7, LastSent: 7, Due: never},
		},
	}
	nats := s.NATS(&cfg, 9, 100)
	back := FromNATS(&cfg, &nats, 100)
	if len(back.Pending) != 3 || back.Pending[1].Deliveries != 0 || back.Pending[0].Deliveries != 1 {
		t.Fatalf("%+v", back)
	}
	for name, s := range map[string]*State{"own": &s, "nats": &back} {
		m, err := machineOf(s)
		if err != nil {
			t.Fatal(name, err)
		}
		if m.led.parked != 2 || m.led.outstanding() != 1 {
			t.Errorf("%s: %s", name, m.dump())
		}
		m.led.unparkAll()
		if m.led.queued != 2 || m.led.outstanding() != 3 {
			t.Errorf("%s, without keys: %s", name, m.dump())
		}
	}
}

// There and back: what nats-server's form carries comes through.
func TestNATSForm(t *testing.T) {
	cfg := &server.ConsumerConfig{AckPolicy: server.AckExplicit, AckWait: 30 * time.Second, MaxDeliver: 5}
	const now = int64(1e18)
	wait := int64(cfg.AckWait)
	s := State{
		Delivered: Position{20, 9}, AckFloor: Position{2, 1}, Next: 10,
		Pending: []PendingState{
			{Stream: 2, Consumer: 3, Deliveries: 3, FirstSent: now - 9, LastSent: now - 5, Due: now - 5 + wait},
			{Stream: 4, Consumer: 5, Deliveries: 1, FirstSent: now - 4, LastSent: now - 4, Due: now + 100*wait, Postponed: true},
			{Stream: 6, Consumer: 6, Deliveries: 2, FirstSent: now - 3, LastSent: now - 3, Due: now - 3 + wait},
			{Stream: 9, Consumer: 9, Deliveries: 1, FirstSent: now - 3, LastSent: now - 3, Due: now - 3 + wait},
		},
		Requeued:  []uint64{6},
		Exhausted: []ExhaustedData{{3, 5}},
	}
	form := s.NATS(cfg, 8, now)
	if form.Delivered.Stream != 8 || len(form.Pending) != 3 || form.Redelivered[2] != 2 || form.Redelivered[3] != 4 {
		t.Errorf("form %+v", form)
	}
	back := FromNATS(cfg, &form, now)
	if _, err := machineOf(&back); err != nil {
		t.Fatal(err)
	}
	for i, p := range back.Pending {
		want := s.Pending[i]
		if want.Stream == 6 {
			want.Due = now // at once
		}
		if p.Stream != want.Stream || p.Consumer != want.Consumer || p.Deliveries != want.Deliveries || p.Due != want.Due {
			t.Errorf("outstanding %+v, want %+v", p, want)
		}
	}
	if len(back.Exhausted) != 1 || back.Exhausted[0] != s.Exhausted[0] {
		t.Errorf("exhausted %+v", back.Exhausted)
	}
	if d := dueFrom(math.MaxInt64-1, wait); d != never {
		t.Errorf("a far deadline is %d", d)
	}
	if d := dueFrom(-5*wait, wait); d != 1 {
		t.Errorf("a deadline before 1970 is %d", d)
	}
}
