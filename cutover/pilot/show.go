package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

func unknown(err error) error { return fmt.Errorf("%w: %w", face.ErrUnknown, err) }

// Status implements face.Engine.
func (p *Pilot) Status(ctx context.Context) (*face.Status, error) {
	st := &face.Status{
		At: time.Now(), Server: p.o.Server, Version: p.o.Version, Mode: string(p.o.Mode),
		Profile: cmp.Or(p.o.Profile, gate.Production), Controls: p.parity.SelfTest(),
		Throttle: p.throttled(cutover.Scope{}), Load: p.loadState(cutover.Scope{}),
		Paused: p.engine.PausedAll(), Hooks: p.hooksState(),
	}
	st.Drills = p.Drills()
	p.surroundings(ctx, st)
	for _, scope := range p.engine.Streams() {
		s, err := p.streamState(ctx, scope)
		if err != nil {
			return nil, err
		}
		st.Streams = append(st.Streams, *s)
		st.Epoch = s.Epoch
	}
	st.Apart = p.apart()
	st.Verdict = verdict(st)
	return st, nil
}

// surroundings are the servers, and who comes by or around the gateway.
func (p *Pilot) surroundings(ctx context.Context, st *face.Status) {
	st.Servers, st.Scrapes, st.Bypass = []face.ServerState{}, []face.Scrape{}, []face.BypassState{}
	if p.o.Servers != nil {
		st.Servers = p.o.Servers()
	}
	if p.o.Outage != nil {
		st.Outage = p.o.Outage()
	}
	if p.o.Scrapes != nil {
		st.Scrapes = p.o.Scrapes()
	}
	for _, account := range slices.Sorted(maps.Keys(p.o.Conns)) {
		st.Bypass = append(st.Bypass, p.bypassed(ctx, account))
	}
}

// alone is the verdict while no server can be reached.
func alone(st *face.Status) string {
	var here, there []string
	for i := range st.Streams {
		if s := &st.Streams[i]; s.Authority == "ehdb" {
			here = append(here, s.Scope.String())
		} else {
			there = append(there, s.Scope.String())
		}
	}
	text := fmt.Sprintf("no NATS server can be reached since %s: %d clients are served from here alone: %s",
		st.Outage.Since.Format(time.TimeOnly), st.Outage.Clients, strings.Join(here, ", "))
	if len(there) > 0 {
		text += "; NOT served: " + strings.Join(there, ", ")
	}
	return text
}

// verdict is one sentence about the worst there is.
func verdict(st *face.Status) string {
	if st.Outage != nil {
		return alone(st)
	}
	if len(st.Apart) > 0 {
		return st.Apart[0]
	}
	here := 0
	for i := range st.Streams {
		s := &st.Streams[i]
		switch {
		case s.LastErr != "":
			return fmt.Sprintf("%s: the last move failed: %s", s.Scope, s.LastErr)
		case s.Observed != nil && s.Observed.Kept != "":
			return fmt.Sprintf("%s: it was to be rolled back by itself, and was NOT: %s", s.Scope, s.Observed.Kept)
		case s.Observed != nil && s.Observed.Failing != "":
			return fmt.Sprintf("%s: it is observed behind its flip, and fails: %s", s.Scope, s.Observed.Failing)
		case len(st.Hooks.Problems) > 0:
			return st.Hooks.Problems[0]
		case failedCanary(s) != "":
			return fmt.Sprintf("%s: %s", s.Scope, failedCanary(s))
		case s.Leftover != "":
			return fmt.Sprintf("%s: %s", s.Scope, s.Leftover)
		case s.Copy.Error != "":
			return fmt.Sprintf("%s: the copy does not follow: %s", s.Scope, s.Copy.Error)
		case s.Phase == face.PhaseEHDB && !s.Back.Lossless:
			return fmt.Sprintf("%s: a rollback would lose messages: %s", s.Scope, s.Back.Why)
		case s.Parity != nil && s.Parity.Counts.Diverged() > 0:
			return fmt.Sprintf("%s: %d sequences differ", s.Scope, s.Parity.Counts.Diverged())
		}
		if s.Authority == "ehdb" {
			here++
		}
	}
	return fmt.Sprintf("%d of %d streams are served from here, nothing differs", here, len(st.Streams))
}

// apart says of which accounts the gateway itself is not connected to the servers, and why.
func (p *Pilot) apart() (list []string) {
	for _, account := range slices.Sorted(maps.Keys(p.o.Conns)) {
		if st := p.o.Conns[account].Status(); !st.Connected {
			list = append(list, fmt.Sprintf("account %s: the gateway itself is not connected to the servers: %v "+
				"(its login there is that of bus.accounts)", account, cmp.Or(st.Err, errNoServer)))
		}
	}
	return list
}

var errNoServer = errors.New("none can be reached")

// failedCanary is what is wrong with one of the consumers that are served from here.
func failedCanary(s *face.StreamState) string {
	for i := range s.Canaries {
		if c := &s.Canaries[i]; c.Error != "" {
			return fmt.Sprintf("consumer %s is served from here, and the servers' is not where it is: %s",
				c.Consumer, c.Error)
		}
		if c := &s.Canaries[i]; c.Failing != "" {
			return fmt.Sprintf("consumer %s is served from here, and a gate that ends that fails: %s", c.Consumer,
				c.Failing)
		}
	}
	return ""
}

// streamState is how a stream stands.
func (p *Pilot) streamState(ctx context.Context, scope cutover.Scope) (*face.StreamState, error) {
	v, err := p.engine.View(scope)
	if err != nil {
		return nil, unknown(err)
	}
	st, err := p.engine.Status(scope)
	if err != nil {
		return nil, unknown(err)
	}
	s := &face.StreamState{
		Scope: scope, Epoch: st.Epoch, Authority: "nats", Since: st.Since, LastErr: st.LastErr,
		ReversibleUntil: "complete", NATS: position(ctx, v.Upstream), EHDB: position(ctx, v.Copy),
		Latency: p.latencies(scope.Account), Fences: []face.Fence{}, Legal: []string{},
	}
	c := st.Counts
	s.Ledger = face.LedgerState{
		Published: c.Published, Acknowledged: c.Acknowledged, Duplicates: c.Duplicates, Refused: c.Refused,
		Unanswered: c.Unanswered, Unasked: c.Unasked, InFlight: c.InFlight,
	}
	_, s.Ledger.Last, _ = p.book.Span(scope)
	if phase(s, st.Phase); st.Ours {
		s.Authority = "ehdb"
	}
	if v.OneWay && s.Undo != "" {
		s.Undo += " --emergency"
	}
	if err := p.served(s); err != nil {
		return nil, unknown(err)
	}
	s.Copy = copyState(v)
	if v.Phase == flip.PhaseShadow {
		s.Copy.Paused, s.Copy.Throttled = p.engine.Paused(scope), p.throttled(scope)
		s.Copy.Load = p.loadState(scope)
	}
	p.speeds(s)
	p.due(s, st.Leftover)
	if par, err := p.parity.Status(scope); err == nil {
		s.Parity = &par
	}
	journal := p.engine.Journal()
	p.mu.Lock()
	if seen := p.seen[scope]; seen != nil {
		s.Fences = fences(journal, scope, seen.fences)
		s.LastErr = cmp.Or(s.LastErr, seen.gaveUp)
	}
	p.mu.Unlock()
	if d, ok := p.drills.log.Last(drill.FlipAndBack, drill.Image()); ok && d.State == drill.Passed {
		s.Back.Rehearsed = d.Ended
	}
	b := st.Rollback
	s.Back.Possible, s.Back.Lossless = st.Phase == flip.PhaseEHDB, b.Lossless
	s.Back.Lost, s.Back.Duplicates, s.Back.Why = b.Lost, b.Duplicates, b.Why
	s.Back.Seconds = lastHold(s.Fences)
	s.Reverse = reverseState(st)
	return s, nil
}

// lastHold is how long a rollback holds a stream, by what was measured last: of rollbacks, else of flips.
func lastHold(list []face.Fence) float64 {
	took := 0.1 // as measured where nothing was yet
	for _, kind := range []string{"flip", "rollback"} {
		for i := range list {
			if list[i].Kind == kind && list[i].Outcome == "done" {
				took = list[i].Seconds
			}
		}
	}
	return took
}

// due fills in what is observed, left over or postponed, and what is to be done about it.
func (p *Pilot) due(s *face.StreamState, leftover string) {
	scope := s.Scope
	if s.Observed = p.observation(scope); s.Observed != nil && s.Phase == face.PhaseEHDB && s.Busy == "" {
		s.Legal = append(s.Legal, "flip accept")
		if s.Observed.Kept != "" {
			s.Next = "ehdbctl rollback " + scope.Flag()
		}
	}
	if s.Leftover = leftover; s.Leftover != "" && s.Authority == "nats" {
		s.Next = "ehdbctl shadow reset " + scope.Flag()
	}
	if s.Postponed = p.postponement(scope); s.Postponed != nil {
		arg := " " + scope.Flag()
		s.Busy, s.Legal = "flip: postponed, waits for "+s.Postponed.Waits, []string{"flip go", "flip abort"}
		s.Undo, s.Next = "ehdbctl flip abort"+arg, "ehdbctl flip go"+arg
	}
}

// served fills in the consumers that are served from here.
func (p *Pilot) served(s *face.StreamState) error {
	list, err := p.engine.Canaries(s.Scope)
	for _, c := range list {
		s.Canaries = append(s.Canaries, face.Canary{
			Consumer: c.Consumer, Since: c.Since, By: c.By, Abort: c.Abort,
			Delivered: c.Delivered, AckFloor: c.AckFloor,
			Pending: c.Pending, Mirrored: c.At, Error: c.Error, Failing: p.failingNow(s.Scope, c.Consumer),
		})
	}
	if len(list) > 0 && s.Phase == face.PhaseShadow {
		s.Phase, s.Legal = face.PhaseCanary, []string{"canary rm", "canary add", "flip"}
		s.Undo = "ehdbctl canary rm --scope 'consumer=" + s.Scope.String() + "/" + list[len(list)-1].Consumer + "'"
	}
	return err
}

// phase fills in what follows from a phase.
func phase(s *face.StreamState, p flip.Phase) {
	arg := " " + s.Scope.Flag()
	switch p {
	case flip.PhaseShadow:
		s.Phase, s.Legal = face.PhaseShadow, []string{"flip", "canary add", "shadow stop", "shadow reset"}
		s.Next = "ehdbctl gates" + arg
	case flip.PhaseFlipping:
		s.Phase, s.Busy = face.PhaseShadow, "flip: held"
	case flip.PhaseEHDB:
		s.Phase, s.Legal = face.PhaseEHDB, []string{"rollback", "complete"}
		s.Undo = "ehdbctl rollback" + arg
	case flip.PhaseRollingBack:
		s.Phase, s.Busy = face.PhaseEHDB, "rollback: held"
	case flip.PhaseComplete:
		s.Phase, s.ReversibleUntil = face.PhaseComplete, ""
	}
}

// speeds fills in the verbs about how fast the copy follows.
func (p *Pilot) speeds(s *face.StreamState) {
	if s.Phase != face.PhaseShadow || s.Busy != "" || !p.engine.MayWait(s.Scope) {
		return
	}
	pick := func(is bool, end, begin string) {
		if is {
			begin = end
		}
		s.Legal = append(s.Legal, begin)
	}
	paused, throttled := p.engine.Slowed(s.Scope)
	pick(paused, "resume", "pause")
	pick(throttled, "throttle off", "throttle")
}

func position(ctx context.Context, r cutover.Reader) face.Position {
	out := face.Position{At: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := r.State(ctx, false)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.First, out.Last, out.Messages, out.Bytes = st.FirstSeq, st.LastSeq, st.Msgs, st.Bytes
	out.Deleted = uint64(max(st.NumDeleted, 0)) //nolint:gosec // not negative
	return out
}

func copyState(v *flip.View) (out face.CopyState) {
	c, ok := v.Capture.(*capture.Capturer)
	if !ok {
		return face.CopyState{Conserved: true, Rung: "try", Backfill: 1}
	}
	st := c.Status()
	n := st.Counts
	out = face.CopyState{
		Enqueued: n.Enqueued, EnqueuedAfterWait: n.EnqueuedAfterWait, Inline: n.QueueFullInline + n.QueueClosedInline,
		Drained: n.Drained, Pending: n.Pending, Abandoned: n.ShutdownAbandoned, LagMessages: st.Lag,
		LagSeconds: st.LagTime.Seconds(), Backfill: 1, Rung: "try",
	}
	out.Conserved = n.Enqueued+n.EnqueuedAfterWait == n.Drained+n.Pending+n.Returned+n.ShutdownAbandoned
	switch {
	case out.Inline > 0:
		out.Rung = "inline"
	case out.EnqueuedAfterWait > 0:
		out.Rung = "wait"
	}
	if st.State == capture.StateBackfilling && st.Target > 0 {
		out.Backfill = float64(st.Applied) / float64(st.Target)
	}
	waits := st.State == capture.StateWaiting && st.Reason != "" && v.Phase == flip.PhaseShadow
	if waits || st.State == capture.StateFailed {
		out.Error = st.Reason
	}
	return out
}

// Events implements face.Engine.
//
//nolint:revive // wait is as in the API
func (p *Pilot) Events(ctx context.Context, after uint64, limit int, wait bool) ([]face.Event, error) {
	for {
		p.mu.Lock()
		moved := p.moved
		p.mu.Unlock()
		list := p.engine.Journal()
		if uint64(len(list)) > after {
			list = list[after:]
			out := make([]face.Event, 0, min(len(list), limit))
			for i := range list[:min(len(list), limit)] {
				out = append(out, event(after+uint64(i)+1, &list[i])) //nolint:gosec // not negative
			}
			return out, nil
		}
		if !wait {
			return []face.Event{}, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return []face.Event{}, nil
		}
	}
}

func event(id uint64, e *flip.Entry) face.Event {
	text := map[flip.Event]string{
		flip.EventShadow: "a copy is kept here from now on", flip.EventForget: "not watched any more",
		flip.EventIntent: "a flip began", flip.EventRollbackIntent: "a rollback began",
		flip.EventFlip:     fmt.Sprintf("served from here, behind sequence %d", e.Last),
		flip.EventRollback: fmt.Sprintf("served by the servers, behind sequence %d", e.Last),
		flip.EventAbort:    "ended without effect", flip.EventComplete: "the way back was given up",
		flip.EventReleased:  "all that was to be done behind that is done",
		flip.EventCanary:    "consumer " + e.Consumer + " is served from here",
		flip.EventCanaryEnd: "consumer " + e.Consumer + " is served by the servers",
		flip.EventPostponed: "a flip is ready and waits", flip.EventHook: "a hook was run",
		flip.EventVeto: "a hook has refused it, nothing has changed", flip.EventPause: "copying is paused",
		flip.EventResume: "copying goes on", flip.EventStart: "the gateway started",
		flip.EventThrottle: "what is behind is held back", flip.EventUnthrottle: "what is behind is copied on",
		flip.EventLimits: limitsText(e.Limits), flip.EventGiveWay: "copying gives way to the load",
		flip.EventGoOn:     "copying gives way no more",
		flip.EventApproved: "somebody else approves of giving up the way back",
		flip.EventReset:    "the copy is filled anew",
		flip.EventAccepted: "the flip is accepted: it is not taken back by itself",
		flip.EventKept:     "the flip was to be taken back by itself, and was NOT: " + e.Kept,
		flip.EventDrill:    "a drill",
	}[e.Event]
	if e.NoReverse {
		text += "; without a way back: the servers are not kept equal"
	}
	if !e.Until.IsZero() {
		text += fmt.Sprintf("; observed until %s", e.Until.Format(time.TimeOnly))
	}
	if m := e.Move; m != nil {
		text += fmt.Sprintf("; it was held for %v", m.Fence.Round(time.Millisecond))
	}
	return face.Event{
		ID: id, Time: e.Time, Kind: string(e.Event), Scope: e.Scope, Epoch: e.Epoch, By: e.By, Reason: e.Reason,
		Text: text,
	}
}

// limitsText is what an event of limits says.
func limitsText(l *flip.Limits) string {
	if l == nil || l.Max == "" && l.Critical == "" {
		return "copying gives way to no load any more"
	}
	return "copying gives way above " + cmp.Or(l.Max, "no load") + " and stops at " + cmp.Or(l.Critical, "none")
}
