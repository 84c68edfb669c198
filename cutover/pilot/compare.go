package pilot

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// changed makes the comparison look at a stream as it stands now.
func (p *Pilot) changed(s cutover.Scope) {
	p.wake()
	p.lease.Kick()
	p.mu.Lock()
	if p.seen[s] == nil {
		p.seen[s] = &seen{since: time.Now(), changed: time.Now(), fresh: true}
	}
	p.seen[s].changes++
	change, fresh := p.seen[s].changes, p.seen[s].fresh
	p.mu.Unlock()
	p.metrics.Flippable(s)
	v, err := p.engine.View(s)
	if err != nil {
		p.parity.Detach(s)
		p.book.Close(s)
		p.mu.Lock()
		delete(p.seen, s)
		p.mu.Unlock()
		return
	}
	if v.Phase == flip.PhaseComplete || v.OneWay { // the servers are not kept equal
		p.parity.Detach(s)
		return
	}
	last, _ := v.Copy.Progress()
	before := unasked(v)
	p.strays.pause(s)
	p.book.Open(s, last+1)
	if early := time.Until(p.start.Add(settleTime)); (early > 0 || fresh) && v.Phase == flip.PhaseShadow {
		p.ended.Go(func() { p.settled(s, change, before, early) })
		return
	}
	p.compare(s, v, change, before)
}

// settleTime is for how long behind the gateway's start the servers may still be storing what another gateway, before
// it, had passed on when it ended. Nobody here has seen the acknowledgements of that, and nobody went around the
// gateway.
const settleTime = 1500 * time.Millisecond

// settled begins to compare a stream when that is over, unless its phase has changed.
func (p *Pilot) settled(s cutover.Scope, change int, before uint64, early time.Duration) {
	select {
	case <-p.live.Done():
		return
	case <-time.After(early):
	}
	p.mu.Lock()
	fresh := p.seen[s] != nil && p.seen[s].fresh
	p.mu.Unlock()
	if fresh {
		p.quiet(s)
	}
	p.mu.Lock()
	same := p.seen[s] != nil && p.seen[s].changes == change
	if same {
		p.seen[s].fresh = false
	}
	p.mu.Unlock()
	if v, err := p.engine.View(s); err == nil && same {
		p.compare(s, v, change, before)
	}
}

// Bounds of quiet: how long it may take until the servers have stored what they took, and between two looks.
const (
	quietTime  = time.Second
	quietPause = 10 * time.Millisecond
)

// quiet waits until the servers have stored what clients published to a stream before it came under watch. They answer
// a PING before they store, but store in the order in which they took: once a publish that came behind is acknowledged,
// nothing older is on its way. If none comes for a while, nothing is.
func (p *Pilot) quiet(s cutover.Scope) {
	ctx, cancel := context.WithTimeout(p.live, notedTime)
	defer cancel()
	_ = p.o.Barrier(ctx) // without the servers' answer it is looked at again
	t := time.NewTicker(quietPause)
	defer t.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		v, err := p.engine.View(s)
		if err != nil || v.Scope.Answered().After(since) {
			return
		}
		if time.Since(since) > quietTime && v.Scope.InFlight() == 0 {
			return
		}
	}
}

// compare begins to compare a stream whose phase has changed so often. before is how many publishes had passed without
// an acknowledgement when its acknowledgements began to be noted.
func (p *Pilot) compare(s cutover.Scope, v *flip.View, change int, before uint64) {
	reverse := v.Phase == flip.PhaseEHDB
	noted, err := p.noted(v)
	if err != nil { // nothing can be said about what came another way
		p.parity.Detach(s)
		p.o.Logger.Debug("A stream is looked at again", slog.String("stream", s.String()), slog.Any("error", err))
		p.ended.Go(func() { p.settled(s, change, before, lookPause) })
		return
	}
	p.book.From(s, noted+1)
	cfg := v.Config
	if cfg.Mirror == nil && len(cfg.Sources) == 0 { // else the servers store messages that nobody publishes
		p.strays.begin(s, noted, before)
	}
	st := parity.Stream{
		Scope: s, Reverse: reverse, NATS: v.Upstream, EHDB: v.Copy, Config: &cfg, Expected: p.expected(s),
		Untimed: untimed(p.engine.Journal(), s), Consumers: p.consumersOf(s),
		RemovedByHand: func() bool { return v.Scope.Counts().Removals > 0 },
	}
	if !reverse {
		st.Repair = parity.StandbyRepairer{Copy: v.Copy}
	}
	if err := p.parity.Attach(st); err != nil {
		p.o.Logger.Error("Stream {stream} is not compared: {error}",
			slog.String("stream", s.String()), slog.Any("error", err))
	}
}

// untimed tells the records of a stream that were published while the gateway had the say: the servers have given them
// times of their own.
func untimed(entries []flip.Entry, s cutover.Scope) func(uint64) bool {
	type span struct{ first, last uint64 }
	var spans []span
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Scope != s:
		case e.Event == flip.EventFlip:
			spans = append(spans, span{e.Last + 1, math.MaxUint64})
		case e.Event == flip.EventRollback && len(spans) > 0:
			spans[len(spans)-1].last = e.Last
		case e.Event == flip.EventForget:
			spans = nil
		}
	}
	return func(seq uint64) bool {
		return slices.ContainsFunc(spans, func(r span) bool { return seq >= r.first && seq <= r.last })
	}
}

// notedTime bounds the question from where on publishes are noted.
const notedTime = 5 * time.Second

// lookPause is between two such questions.
const lookPause = 500 * time.Millisecond

// noted returns the sequence behind which every publish through the gateway is noted.
func (p *Pilot) noted(v *flip.View) (uint64, error) {
	last, _ := v.Copy.Progress()
	ctx, cancel := context.WithTimeout(p.live, notedTime)
	defer cancel()
	if err := p.o.Barrier(ctx); err != nil { // what was on its way is stored
		return 0, err
	}
	st, err := v.Upstream.State(ctx, false)
	return max(last, st.LastSeq), err
}

// expected implements parity.Stream.Expected.
func (p *Pilot) expected(s cutover.Scope) func() (uint64, string) {
	return func() (uint64, string) {
		v, err := p.engine.View(s)
		if err != nil {
			return 0, err.Error()
		}
		c, ok := v.Capture.(*capture.Capturer)
		if !ok || v.Phase != flip.PhaseShadow {
			return ^uint64(0), ""
		}
		st := c.Status()
		if st.State == capture.StateLive || st.State == capture.StateIdle {
			return ^uint64(0), ""
		}
		return st.Applied, string(st.State) + ": " + st.Reason
	}
}

// consumersOf implements parity.Stream.Consumers.
func (p *Pilot) consumersOf(s cutover.Scope) func(context.Context) ([]parity.Consumer, error) {
	return func(ctx context.Context) ([]parity.Consumer, error) {
		v, err := p.engine.View(s)
		if err != nil || v.Phase != flip.PhaseShadow {
			return nil, err // here they are checked by the stream itself, all the time
		}
		known, err := v.Upstream.Consumers(ctx)
		if err != nil {
			return nil, err
		}
		for _, i := range known { // from here on what they deliver is noted, and nothing is said of it yet
			p.book.Watch(s, i.Name, parity.NotYet)
		}
		before, err := v.Upstream.State(ctx, false)
		if err != nil {
			return nil, err
		}
		infos, err := v.Upstream.Consumers(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]parity.Consumer, 0, len(infos))
		for _, i := range infos {
			p.book.Watch(s, i.Name, before.LastSeq+1)
			c := consumerOf(v, i)
			c.StreamLast = max(before.LastSeq, 1)
			out = append(out, c)
		}
		return out, nil
	}
}

// consumerOf is a consumer of the servers, and how well its state is known here.
func consumerOf(v *flip.View, i *server.ConsumerInfo) parity.Consumer {
	c := parity.Consumer{
		Name: i.Name, Config: *i.Config, Side: "nats", Delivered: i.Delivered.Stream, AckFloor: i.AckFloor.Stream,
		Pending: i.NumPending, AckPending: uint64(max(i.NumAckPending, 0)), //nolint:gosec // not negative
		Redelivered: uint64(max(i.NumRedelivered, 0)), //nolint:gosec // not negative
		Exact:       i.NumAckPending == 0 || v.Scope.Exact(i) || v.Canaries[i.Name],
	}
	if !c.Exact {
		c.WorstCase = c.AckPending
	}
	if i.Delivered.Last != nil {
		c.LastDelivery = *i.Delivered.Last
	}
	if i.AckFloor.Last != nil {
		c.LastAck = *i.AckFloor.Last
	}
	return c
}
