package parity

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Consumer is what the side that serves a consumer says of it.
type Consumer struct {
	Name   string
	Config server.ConsumerConfig
	Side   string // "nats" or "ehdb"

	Delivered, AckFloor   uint64 // sequences of the stream
	Pending, AckPending   uint64 // num_pending, num_ack_pending
	Redelivered           uint64
	LastDelivery, LastAck time.Time // zero: never
	// StreamLast is the stream's last sequence before the figures were read: what came behind it may be missing in
	// them. 0: nothing came meanwhile.
	StreamLast uint64
	// Outstanding are messages without an ack that the side will offer again by itself, if that is known: one that got
	// lost on its way to a client is not stranded.
	Outstanding []uint64
	Exact       bool   // what is pending is known exactly, so that a transfer repeats nothing
	WorstCase   uint64 // how many messages a transfer may repeat at most
}

// ConsumerReport is what delivery parity says of a consumer. Stored, Acked and the others count stored messages that
// the consumer wants, from Since on.
type ConsumerReport struct {
	Consumer string   `json:"consumer"`
	Side     string   `json:"side"`
	Filters  []string `json:"filters,omitempty"`
	// Known: the sequences that it was offered are noted from Since on. Without that nothing is said.
	Known bool   `json:"known"`
	Since uint64 `json:"since"`

	Stored      uint64 `json:"stored_matching"`
	Acked       uint64 `json:"acked"`
	AckPending  uint64 `json:"ack_pending"`
	Undelivered uint64 `json:"undelivered"`
	// Drift is stored_matching - acked - ack_pending - num_pending, the last two as the server says. Balanced: it was 0
	// within the window.
	Drift    int64 `json:"drift"`
	Balanced bool  `json:"balanced"`
	// Stranded counts messages older than the window that it moved past and was never offered, and names the first.
	Stranded     uint64   `json:"stranded"`
	StrandedSeqs []uint64 `json:"stranded_seqs,omitempty"`

	Delivered    uint64    `json:"delivered"`
	AckFloor     uint64    `json:"ack_floor"`
	NumPending   uint64    `json:"num_pending"`
	Redelivered  uint64    `json:"redelivered"`
	LastDelivery time.Time `json:"last_delivery,omitzero"`
	LastAck      time.Time `json:"last_ack,omitzero"`
	AckWait      float64   `json:"ack_wait_seconds"`
	Exact        bool      `json:"exact"`
	WorstCase    uint64    `json:"worst_case_duplicates"`
}

// maxStranded is how many stranded sequences are named.
const maxStranded = 100

// offered is everything that a consumer was offered.
func offered(d cutover.Deliveries, scope cutover.Scope, consumer string) (*roaring64.Bitmap, uint64, bool) {
	b := roaring64.New()
	if d == nil {
		return b, 0, false
	}
	since, ok := d.Offered(scope, consumer, func(first, last uint64) bool {
		b.AddRange(first, last+1)
		return true
	})
	return b, since, ok
}

// present is the set of sequences that a stream has, by its state with what is deleted.
func present(st *server.StreamState) *roaring64.Bitmap {
	b := roaring64.New()
	if st.Msgs > 0 {
		b.AddRange(st.FirstSeq, st.LastSeq+1)
		b.AndNot(roaring64.BitmapOf(st.Deleted...))
	}
	return b
}

// weigh sets a consumer against what is stored: wanted is what it wants of that, given what it was offered. It is all
// of delivery parity but for the reading.
func weigh(c *Consumer, wanted, offered *roaring64.Bitmap) (r ConsumerReport, stranded *roaring64.Bitmap) {
	passed := upTo(wanted, c.Delivered)
	stranded = roaring64.AndNot(passed, offered)
	seen := passed.GetCardinality() - stranded.GetCardinality()
	r = ConsumerReport{
		Consumer: c.Name, Side: c.Side, Filters: cutover.Filters(&c.Config), Known: true,
		Stored: wanted.GetCardinality(), AckPending: c.AckPending, NumPending: c.Pending,
		Undelivered: wanted.GetCardinality() - passed.GetCardinality(),
		Delivered:   c.Delivered, AckFloor: c.AckFloor, Redelivered: c.Redelivered, LastDelivery: c.LastDelivery,
		LastAck: c.LastAck, AckWait: c.Config.AckWait.Seconds(), Exact: c.Exact, WorstCase: c.WorstCase,
	}
	held := min(seen, c.AckPending) // some that are not acknowledged may be removed by now
	r.Acked = seen - held
	r.Drift = int64(r.Stored) - int64(r.Acked+held) - int64(r.NumPending) //nolint:gosec // counts
	return r, stranded
}

func upTo(b *roaring64.Bitmap, last uint64) *roaring64.Bitmap {
	out := b.Clone()
	if !out.IsEmpty() && out.Maximum() > last {
		out.RemoveRange(last+1, out.Maximum()+1)
	}
	return out
}

// catalog knows which sequences match which filter. It reads each record once, and again only if a sequence turns up
// that was not there before, wherever that is.
type catalog struct {
	seen    *roaring64.Bitmap
	matches map[string]*roaring64.Bitmap // by filter
}

// scattered is how many records are fetched one by one rather than by reading on from the first.
const scattered = 64

// follow reads what is new in stored, if anybody filters.
func (c *catalog) follow(ctx context.Context, r cutover.Reader, stored *roaring64.Bitmap, filters []string) error {
	if c.seen == nil {
		c.seen, c.matches = roaring64.New(), map[string]*roaring64.Bitmap{}
	}
	for _, f := range filters {
		if c.matches[f] == nil { // a new filter: everything is read anew for it
			c.matches[f], c.seen = roaring64.New(), roaring64.New()
		}
	}
	for f := range c.matches {
		if !slices.Contains(filters, f) {
			delete(c.matches, f)
		}
	}
	if len(filters) == 0 {
		return nil
	}
	fresh := roaring64.AndNot(stored, c.seen)
	if fresh.IsEmpty() {
		return nil
	}
	if fresh.GetCardinality() <= scattered {
		return c.fetch(ctx, r, fresh)
	}
	last := fresh.Maximum()
	return r.Read(ctx, fresh.Minimum(), func(rec *cutover.Record, err error) bool {
		if err == nil && fresh.Contains(rec.Seq) {
			c.add(rec)
		}
		return rec == nil || rec.Seq < last
	})
}

func (c *catalog) fetch(ctx context.Context, r cutover.Reader, seqs *roaring64.Bitmap) error {
	for it := seqs.Iterator(); it.HasNext(); {
		rec, err := r.Get(ctx, it.Next())
		switch {
		case errors.Is(err, cutover.ErrNoRecord) || unreadable(err):
		case err != nil:
			return err
		default:
			c.add(rec)
		}
	}
	return nil
}

func (c *catalog) add(rec *cutover.Record) {
	c.seen.Add(rec.Seq)
	for f, set := range c.matches {
		if subjects.Match(f, rec.Subject) {
			set.Add(rec.Seq)
		}
	}
}

// wanted returns what of stored a consumer wants, from a sequence on, or from where it is if that is lower.
func (c *catalog) wanted(stored *roaring64.Bitmap, of *Consumer, since uint64) *roaring64.Bitmap {
	cfg := &of.Config
	since = min(since, of.Delivered+1)
	out := stored.Clone()
	if filters := cutover.Filters(cfg); len(filters) > 0 {
		union := roaring64.New()
		for _, f := range filters {
			union.Or(c.matches[f])
		}
		out.And(union)
	}
	if cfg.DeliverPolicy == server.DeliverByStartSequence {
		since = max(since, cfg.OptStartSeq)
	}
	if since > 0 && !out.IsEmpty() {
		out.RemoveRange(0, since)
	}
	return out
}

// DeliveryCheck is one look at a stream's consumers.
type DeliveryCheck struct {
	Scope      cutover.Scope
	Stored     cutover.Reader // of the side that serves them
	Consumers  []Consumer
	Deliveries cutover.Deliveries
	Now        time.Time
	Window     time.Duration
}

// DeliveryMemory is what is kept from one look at a stream's consumers to the next. Its zero value has seen none.
type DeliveryMemory struct {
	catalog  catalog
	balanced map[string]time.Time // when the figures of a consumer last added up
}

// Check looks at each consumer.
func (m *DeliveryMemory) Check(ctx context.Context, d *DeliveryCheck) ([]ConsumerReport, error) {
	st, err := d.Stored.State(ctx, true)
	if err != nil {
		return nil, err
	}
	stored := present(&st)
	var filters []string
	for i := range d.Consumers {
		filters = append(filters, cutover.Filters(&d.Consumers[i].Config)...)
	}
	slices.Sort(filters)
	if err := m.catalog.follow(ctx, d.Stored, stored, slices.Compact(filters)); err != nil {
		return nil, err
	}
	before := m.balanced
	m.balanced = map[string]time.Time{}
	var out []ConsumerReport
	for i := range d.Consumers {
		c := &d.Consumers[i]
		set, since, ok := offered(d.Deliveries, d.Scope, c.Name)
		if !ok {
			r, _ := weigh(c, roaring64.New(), set)
			r.Known, r.Drift = false, 0
			out = append(out, r)
			continue
		}
		set.AddMany(c.Outstanding)
		wanted := m.catalog.wanted(stored, c, since)
		r, stranded := weigh(c, wanted, set)
		r.Since = since
		if err := d.name(ctx, &r, stranded); err != nil {
			return nil, err
		}
		at, known := before[c.Name]
		if c.addsUp(r.Drift, wanted) || !known {
			at = d.Now
		}
		m.balanced[c.Name] = at
		r.Balanced = d.Now.Sub(at) <= d.Window
		out = append(out, r)
	}
	return out, nil
}

// addsUp reports whether a drift is explained by what came, or was acknowledged, between the reading of the figures and
// of what is stored.
func (c *Consumer) addsUp(drift int64, wanted *roaring64.Bitmap) bool {
	if drift == 0 || c.StreamLast == 0 {
		return drift == 0
	}
	late := int64(wanted.GetCardinality() - wanted.Rank(c.StreamLast)) //nolint:gosec // counts
	return drift <= late && drift >= -int64(c.AckPending)              //nolint:gosec // a count
}

// name names the stranded sequences that are older than the window. Younger ones may be on their way.
func (d *DeliveryCheck) name(ctx context.Context, r *ConsumerReport, stranded *roaring64.Bitmap) error {
	horizon := d.Now.Add(-d.Window).UnixNano()
	var first []uint64
	for it := stranded.Iterator(); it.HasNext() && len(first) < maxStranded; {
		first = append(first, it.Next())
	}
	r.Stranded = stranded.GetCardinality() - uint64(len(first)) // as old as those, or about to be
	items, err := readThese(ctx, d.Stored, first)
	if err != nil {
		return err
	}
	for _, seq := range first {
		it := items[seq]
		if it == nil || it.err == nil && it.time > horizon {
			continue
		}
		r.Stranded++
		r.StrandedSeqs = append(r.StrandedSeqs, seq)
	}
	return nil
}

// strandedControl sets two consumers without lag against the same stored messages: one was offered all of them, the
// other never the fourth, which came when it had passed already.
func strandedControl() Control {
	stored := roaring64.New()
	stored.AddRange(1, fixtureSize+1)
	all := stored.Clone()
	few := stored.Clone()
	few.Remove(4)
	c := Consumer{Name: "control", Delivered: fixtureSize, AckFloor: fixtureSize}
	fine, none := weigh(&c, stored, all)
	bad, one := weigh(&c, stored, few)
	out := Control{Name: "stranded", Want: "stranded 1"}
	switch {
	case fine.Drift != 0 || !none.IsEmpty():
		out.Got, out.Detail = "stranded without cause", "one that was offered all is said to have missed some"
	case one.GetCardinality() != 1 || !one.Contains(4) || bad.Drift != 1:
		out.Got, out.Detail = "nothing", "NOT DETECTED: a message that was never offered, while lag is 0"
	default:
		out.Expected, out.Got, out.Detail = true, out.Want, "found by the set of what was offered; the lag is 0"
	}
	return out
}
