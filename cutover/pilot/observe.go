package pilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/hook"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// A flip is observed for a while, which is in the journal. What is wrong twice in a row takes it back, as `rollback`
// does and never as `rollback --emergency`; what cannot be taken back is said loudly, and tried again until the time is
// over.

const (
	observeStart   = time.Second      // how often it is looked whether there is a flip to observe
	observeLook    = 10 * time.Second // bounds one look
	unansweredTime = 2 * time.Second  // for which a publish may be without a PubAck
	stallTime      = 5 * time.Second  // for which a consumer with work and takers may deliver nothing
	takeBackTime   = time.Minute      // bounds one attempt to take a flip back
	takeBackPause  = 15 * time.Second // between attempts
)

// observing is a flip that is observed. One goroutine uses it, but for failing.
type observing struct {
	scope   cutover.Scope
	memory  parity.DeliveryMemory
	reports []parity.ConsumerReport
	at      time.Time // of reports; zero: there are none
	since   time.Time // of the flip
	looks   int
	next    time.Time // when it may be tried again to take it back
	failing *failing  // guarded by Pilot.mu
}

// observeFlips observes flips until ctx ends, each by itself.
func (p *Pilot) observeFlips(ctx context.Context) {
	t := time.NewTicker(observeStart)
	defer t.Stop()
	for {
		for _, scope := range p.engine.Streams() {
			p.beginObserving(ctx, scope)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// beginObserving observes a flip, if there is one to observe and nobody does.
func (p *Pilot) beginObserving(ctx context.Context, scope cutover.Scope) {
	o, is := p.engine.Observation(scope)
	if !is || o.Kept != "" && o.Over(time.Now()) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observing[scope] != nil || ctx.Err() != nil {
		return
	}
	w := &observing{scope: scope, since: o.Since, failing: newFailing()}
	p.observing[scope] = w
	p.delivered.Open(scope, 1)
	p.ended.Go(func() {
		p.observe(ctx, w)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.observing, scope)
		p.delivered.Close(scope)
	})
}

// observe looks at a flip until its time is over, it is taken back, or ctx ends.
func (p *Pilot) observe(ctx context.Context, w *observing) {
	t := time.NewTicker(p.confirming())
	defer t.Stop()
	for ctx.Err() == nil {
		o, is := p.engine.Observation(w.scope)
		switch {
		case !is || !o.Since.Equal(w.since): // it was rolled back, or completed, or accepted
			return
		case p.o.Mode != ModeShadow:
			if p.settle(w, "bus mode "+string(p.o.Mode), "the bus's mode says where the stream is to be") {
				return
			}
		case !o.Over(time.Now()):
			p.lookAtFlip(ctx, w, &o)
		case o.Kept != "":
			return // somebody has to look
		default:
			why := fmt.Sprintf("observed for %v, nothing failed twice in a row",
				o.Until.Sub(o.Since).Round(time.Second))
			if w.looks == 0 {
				why = "its time was over before the gateway was there to look"
			}
			if p.settle(w, "gateway", why) {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// settle ends an observation well, unless the stream is being moved.
func (p *Pilot) settle(w *observing, by, why string) bool {
	if err := p.engine.Accept(w.scope, flip.MoveOptions{By: by, Reason: why}); err != nil {
		return false
	}
	p.metrics.Observed(w.scope, face.ObservedAccepted)
	f := p.about(w.scope, "observe", "ehdb", face.Actor{By: by, Reason: why})
	p.tell(hook.Success, w.scope, f)
	p.o.Logger.Info("Stream {stream} stays here: {reason}", slog.String("stream", w.scope.String()),
		slog.String("reason", why))
	return true
}

// lookAtFlip looks once, and takes the flip back if something was wrong twice.
func (p *Pilot) lookAtFlip(ctx context.Context, w *observing, o *flip.Observation) {
	if _, there := p.o.Local.Scopes()[w.scope]; !there {
		return // a client has deleted it here: there is nothing to judge, and the status says so
	}
	list, err := p.findings(ctx, w, o)
	if err != nil {
		return
	}
	p.mu.Lock()
	twice := w.failing.take(list)
	p.mu.Unlock()
	w.looks++
	if twice != "" && time.Now().After(w.next) {
		w.next = time.Now().Add(takeBackPause)
		p.takeBack(ctx, w, o, twice)
	}
}

// findings is what is wrong with a flip now.
func (p *Pilot) findings(ctx context.Context, w *observing, o *flip.Observation) (list []finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, observeLook)
	defer cancel()
	v, err := p.engine.View(w.scope)
	if err != nil {
		return nil, err
	}
	st, err := p.engine.Status(w.scope)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if n, subject := p.o.Relay.Unanswered(v.Scope, unansweredTime); n > 0 && !v.Config.NoAck {
		list = append(list, finding{"publishes", fmt.Sprintf("%d publishes have no PubAck for more than %v, one of "+
			"them to %s", n, unansweredTime, subject), now})
	}
	infos, err := p.consumersHere(ctx, w, v)
	if err != nil {
		list = append(list, finding{"requests", "what consumers there are here is not answered: " + err.Error(), now})
	}
	list = append(list, stalled(infos, o.Since, now)...)
	list = append(list, lagging(ctx, v, st, now)...)
	if len(o.Gates) == 0 {
		return list, nil
	}
	report, err := p.evaluate(ctx, w.scope, &question{observed: w})
	if err != nil {
		return nil, err
	}
	return append(list, failed(&report, o.Gates)...), nil
}

// stalled are consumers that have work, and somebody who takes it, and deliver nothing.
func stalled(infos []*server.ConsumerInfo, since, now time.Time) (list []finding) {
	for _, i := range infos {
		last := since
		if d := i.Delivered.Last; d != nil && d.After(last) {
			last = *d
		}
		if quiet := now.Sub(last); quiet > stallTime && deliverable(i) {
			list = append(list, finding{"consumer " + i.Name, fmt.Sprintf("consumer %s has %d messages to deliver and "+
				"somebody who takes them, and has delivered nothing for %v", i.Name, i.NumPending,
				quiet.Round(time.Second)), now})
		}
	}
	return list
}

// deliverable reports whether a consumer could deliver something now. One that has to wait for whoever takes its
// messages, or for its own rules, may not be able to; of these it is not known.
func deliverable(i *server.ConsumerInfo) bool {
	cfg := i.Config
	switch {
	case i.NumPending == 0 || i.Paused || i.NumWaiting == 0 && !i.PushBound:
		return false
	case cfg.MaxAckPending > 0 && i.NumAckPending >= cfg.MaxAckPending:
		return false
	case cfg.FlowControl || cfg.RateLimit > 0 || cfg.PriorityPolicy != server.PriorityNone:
		return false
	}
	for key := range cfg.Metadata {
		if strings.HasPrefix(key, "ehdb.") { // messages of one key wait for each other
			return false
		}
	}
	return true
}

// lagging is that the servers are not kept equal.
func lagging(ctx context.Context, v *flip.View, st *flip.Status, now time.Time) []finding {
	r := st.Reverse
	switch {
	case r == nil:
		return nil // it was wanted so
	case r.Err != nil:
		return []finding{{"reverse", "the servers are not kept equal: " + r.Err.Error(), now}}
	case st.Here <= r.Position:
		return nil
	}
	age := now.Sub(r.Since)
	if rec, err := v.Copy.Get(ctx, r.Position+1); err == nil {
		age = now.Sub(time.Unix(0, rec.Time))
	}
	if age <= flip.ReverseBound {
		return nil
	}
	return []finding{{"reverse", fmt.Sprintf("the servers lack %d messages, the oldest of them for %v; at most %v are "+
		"tolerated", st.Here-r.Position, age.Round(100*time.Millisecond), flip.ReverseBound), now}}
}

// takeBack rolls an observed flip back, or says why it cannot.
func (p *Pilot) takeBack(ctx context.Context, w *observing, o *flip.Observation, twice string) {
	why := "under observation, failed twice in a row: " + twice
	err := p.tryBack(ctx, w.scope, why)
	switch {
	case err == nil:
		p.metrics.Observed(w.scope, face.ObservedRolledBack)
		p.o.Logger.Warn("Stream {stream} was given back to the servers: {reason}",
			slog.String("stream", w.scope.String()), slog.String("reason", why))
		p.tellObserved(w.scope, "nats", why)
		return
	case ctx.Err() != nil || errors.Is(err, flip.ErrBusy):
		return
	}
	news, first, failure := p.engine.Keep(w.scope, why, err.Error())
	if failure != nil {
		p.o.Logger.Error("The journal cannot be written: {error}", slog.Any("error", failure))
	}
	if first || failure != nil && o.Kept == "" {
		p.metrics.Observed(w.scope, face.ObservedRefused)
	}
	if news || failure != nil {
		p.o.Logger.Error("Stream {stream} was to be given back to the servers and was NOT: {error} ({reason})",
			slog.String("stream", w.scope.String()), slog.Any("error", err), slog.String("reason", why))
		p.tellObserved(w.scope, "ehdb", why+"; NOT rolled back: "+err.Error())
	}
}

func (p *Pilot) tellObserved(scope cutover.Scope, to, why string) {
	f := p.about(scope, "observe", to, face.Actor{By: "gateway"})
	f.Error = why
	p.tell(hook.Failure, scope, f)
}

// tryBack is one attempt to take a flip back. Nothing that is lost by it is ever agreed to.
func (p *Pilot) tryBack(ctx context.Context, scope cutover.Scope, why string) error {
	if v, err := p.engine.View(scope); err == nil && v.OneWay {
		return fmt.Errorf("%w: it was flipped with --no-reverse-shadow: there is no way back without a loss",
			face.ErrRefused)
	}
	ctx, cancel := context.WithTimeout(ctx, takeBackTime)
	defer cancel()
	_, err := p.Rollback(ctx, face.RollbackRequest{Actor: face.Actor{By: "gateway", Reason: why}, Scope: scope})
	return err
}

// Accept implements face.Engine.
func (p *Pilot) Accept(_ context.Context, scope cutover.Scope, by face.Actor) error {
	if _, err := p.engine.View(scope); err != nil {
		return unknown(err)
	}
	if err := p.engine.Accept(scope, flip.MoveOptions{By: by.By, Reason: by.Reason}); err != nil {
		return refused(err)
	}
	p.metrics.Observed(scope, face.ObservedAccepted)
	return nil
}

// observes reports whether a flip of an account is observed.
func (p *Pilot) observes(account string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for scope := range p.observing {
		if scope.Account == account {
			return true
		}
	}
	return false
}

// observation is how an observation is shown; nil: there is none.
func (p *Pilot) observation(scope cutover.Scope) *face.Observation {
	o, is := p.engine.Observation(scope)
	if !is {
		return nil
	}
	out := &face.Observation{Since: o.Since, Until: o.Until, Gates: o.Gates, Kept: o.Kept}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.observing[scope]; w != nil {
		out.Failing = w.failing.text
	}
	return out
}
