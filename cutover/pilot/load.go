package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/probe"
)

// Copying what is behind, and comparing all of a stream, give way to load: above --max-load they wait, and at
// --critical-load they stop until somebody resumes. What is measured are the publishes of clients, and where there are
// too few the gateway's own; the servers are asked for nothing as long as nobody has set such limits.

const (
	loadEvery  = time.Second      // how often it is looked
	loadSpan   = 10 * time.Second // of the figures that --max-load is compared with
	loadDrill  = 2 * time.Second  // the same in the profile drill
	loadBeats  = 5                // publishes of a look
	loadEnough = 20               // publishes of clients in loadSpan, so that those of the gateway are not needed
	loadFew    = 3                // figures that a percentile is of at least
	loadRow    = 3                // looks in a row that are to be critical, each by figures of its own
)

// loads is what is measured of the load, and what gives way to it.
type loads struct {
	watching atomic.Bool // there are limits

	mu sync.Mutex
	// The following are guarded by mu.
	acks, beats, trips map[string]*probe.Ring // publishes of clients, of the gateway, and round trips, by account
	lag                probe.Ring             // of copies that follow
	over               map[cutover.Scope]*over

	pulses map[string]*probe.Pulse // of the goroutine that looks
}

// over is how the limits of a stream, or of all, are kept to.
type over struct {
	measured map[string]float64 // seconds
	reason   string             // what is above them; empty: nothing
	critical int                // looks in a row
	looked   time.Time
	trouble  string // why it could not be stopped
}

func newLoads() *loads {
	return &loads{
		acks: make(map[string]*probe.Ring), beats: make(map[string]*probe.Ring),
		trips: make(map[string]*probe.Ring), over: make(map[cutover.Scope]*over),
		pulses: make(map[string]*probe.Pulse),
	}
}

// add notes something that was measured for an account.
func (l *loads) add(to map[string]*probe.Ring, account string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to[account] == nil {
		to[account] = &probe.Ring{}
	}
	to[account].Add(took, time.Now())
}

// acked notes how long a client's publish took; following how old messages are when a copy has them.
func (l *loads) acked(account string, took time.Duration) {
	if l.watching.Load() {
		l.add(l.acks, account, took)
	}
}

func (l *loads) following(c *capture.Capturer, lag time.Duration) {
	if l.watching.Load() && c.Status().State == capture.StateLive {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lag.Add(lag, time.Now())
	}
}

// measure is what is known of some accounts' load since a time: of each the worst. What is not in it is not known.
// few is how many figures a percentile is of at least.
func (l *loads) measure(accounts []string, since time.Time, few uint64) face.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := face.Load{}
	put := func(name string, r *probe.Ring, q float64) {
		if r != nil && r.N() >= few {
			out[name] = max(out[name], r.Quantiles(q)[0])
		}
	}
	const median, tail = 0.5, 0.99
	for _, a := range accounts {
		acks := lately(l.acks[a], since)
		if acks == nil || acks.N() < loadEnough {
			acks = lately(l.beats[a], since)
		}
		put("pubp50", acks, median)
		put("pubp99", acks, tail)
		put("rtt", lately(l.trips[a], since), median)
	}
	out["lag"] = 0 // nothing follows, so nothing lags
	lag := l.lag.Behind(since)
	put("lag", &lag, tail)
	return out
}

// lately are the figures since a time; nil: there never were any.
func lately(r *probe.Ring, t time.Time) *probe.Ring {
	if r == nil {
		return nil
	}
	out := r.Behind(t)
	return &out
}

// watchLoad looks at the load until ctx ends.
func (p *Pilot) watchLoad(ctx context.Context) {
	t := time.NewTicker(loadEvery)
	defer t.Stop()
	defer p.endPulses()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		limits := p.engine.Limits()
		p.loads.watching.Store(len(limits) > 0)
		if len(limits) == 0 {
			p.endPulses()
		} else {
			p.beat(ctx, limits)
		}
		for scope := range p.loads.states() {
			if _, is := limits[scope]; !is {
				p.goOn(scope, "the limits were lifted")
				p.loads.forget(scope)
			}
		}
		for scope, l := range limits {
			if ctx.Err() == nil {
				p.judgeLoad(scope, &l)
			}
		}
	}
}

func (l *loads) states() map[cutover.Scope]*over {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.over)
}

func (l *loads) forget(scope cutover.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.over, scope)
}

// endPulses deletes the streams on the servers that were made to measure.
func (p *Pilot) endPulses() {
	for account, pulse := range p.loads.pulses {
		if p.o.Conns[account].Status().Connected {
			pulse.Close(context.Background()) //nolint:forbidigo // bounded by itself
		}
		delete(p.loads.pulses, account)
	}
}

// accountsOf are those that the load of a stream is of.
func (p *Pilot) accountsOf(scope cutover.Scope) []string {
	if scope.Account != "" {
		return []string{scope.Account}
	}
	return slices.Sorted(maps.Keys(p.o.Conns))
}

// beat measures what limits are about and clients do not tell.
func (p *Pilot) beat(ctx context.Context, limits map[cutover.Scope]flip.Limits) {
	wants := make(map[string]string) // by account
	for scope, l := range limits {
		for _, a := range p.accountsOf(scope) {
			wants[a] += l.Max + "," + l.Critical + ","
		}
	}
	var all sync.WaitGroup
	for account, names := range wants {
		c := p.o.Conns[account]
		if c == nil || !c.Status().Connected {
			continue // there is nothing to copy from either
		}
		pulse := p.loads.pulses[account]
		if pulse == nil {
			id := clean(p.o.Server)
			pulse = probe.NewPulse(probe.Servers(c.NATS()), scratchPrefix+id+"_LOAD", "_EHDB.load."+id)
			p.loads.pulses[account] = pulse
		}
		all.Go(func() {
			if strings.Contains(names, "rtt=") {
				p.trip(ctx, account)
			}
			if strings.Contains(names, "pubp") {
				took := func(d time.Duration) { p.loads.add(p.loads.beats, account, d) }
				if err := pulse.Beat(ctx, loadBeats, p.replicas(account), took); err != nil && ctx.Err() == nil {
					p.o.Logger.Debug("The servers' load is not measured", slog.String("account", account),
						slog.Any("error", err))
				}
			}
		})
	}
	all.Wait()
}

// trip measures one round trip to the servers.
func (p *Pilot) trip(ctx context.Context, account string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) //nolint:mnd // as a publish may take
	defer cancel()
	since := time.Now()
	err := p.o.Conns[account].NATS().FlushWithContext(ctx)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		p.loads.add(p.loads.trips, account, time.Since(since))
	}
}

// replicas are the most that a stream of an account has: a publish takes longer where there are more.
func (p *Pilot) replicas(account string) (n int) {
	for _, scope := range p.engine.Streams() {
		if v, err := p.engine.View(scope); err == nil && scope.Account == account {
			n = max(n, v.Config.Replicas)
		}
	}
	return n
}

func (p *Pilot) span() time.Duration {
	if p.o.Profile == gate.Drill {
		return loadDrill
	}
	return loadSpan
}

// exceeded is what is above some bounds, or not known.
func exceeded(bounds, measured face.Load) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		switch v, known := measured[name]; {
		case !known:
			out = append(out, name+" is not known: the servers have acknowledged nothing lately")
		case v > bounds[name]:
			out = append(out, fmt.Sprintf("%s %v is above %v", name, v.Round(10*time.Microsecond), bounds[name]))
		}
	}
	return strings.Join(out, "; ")
}

// judgeLoad makes what is about a stream give way, stop, or go on.
func (p *Pilot) judgeLoad(scope cutover.Scope, l *flip.Limits) {
	most, err := face.ParseLoad(l.Max)
	critical, err2 := face.ParseLoad(l.Critical)
	if err := errors.Join(err, err2); err != nil {
		p.o.Logger.Error("The load that copying gives way to cannot be read", slog.Any("error", err))
		return
	}
	now, accounts := time.Now(), p.accountsOf(scope)
	p.loads.mu.Lock()
	o := p.loads.over[scope]
	if o == nil {
		o = &over{looked: now.Add(-loadEvery)}
		p.loads.over[scope] = o
	}
	since, was := o.looked, o.reason
	p.loads.mu.Unlock()

	measured := p.loads.measure(accounts, now.Add(-p.span()), loadFew)
	reason := exceeded(most, measured)
	fresh := p.loads.measure(accounts, since, 1)
	for name := range critical { // what is not known is no evidence that it is critical
		if _, known := fresh[name]; !known {
			fresh[name] = 0
		}
	}
	stop := exceeded(critical, fresh)
	set := "set by " + cmp.Or(l.By, "somebody")
	if l.Reason != "" {
		set += ": " + l.Reason
	}
	if reason != "" {
		reason += " (--max-load " + set + ")"
	}
	p.loads.mu.Lock()
	o.looked, o.reason, o.measured = now, reason, make(map[string]float64)
	for name, v := range measured {
		o.measured[name] = v.Seconds()
	}
	if o.critical++; stop == "" {
		o.critical = 0
	}
	halt := o.critical >= loadRow
	p.loads.mu.Unlock()
	switch {
	case was == "" && reason != "":
		p.noteLoad(flip.EventGiveWay, scope, reason)
	case was != "" && reason == "":
		p.noteLoad(flip.EventGoOn, scope, "the load is below --max-load "+l.Max+" again ("+set+")")
	}
	if halt {
		p.halt(scope, o, stop+" (--critical-load "+set+")")
	}
}

// halt stops copying and full comparisons of a stream, or of all, until somebody resumes.
func (p *Pilot) halt(scope cutover.Scope, o *over, why string) {
	for _, s := range p.engine.Streams() {
		if scope == (cutover.Scope{}) || scope == s {
			_ = p.parity.StopFull(s) // one that is not compared has none
		}
	}
	if already := p.engine.PausedAll(); already != "" || scope.Stream != "" && p.engine.Paused(scope) != "" {
		return
	}
	err := p.engine.Pause(scope, flip.MoveOptions{By: "gateway", Reason: "critical load: " + why})
	p.wake()
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.loads.mu.Lock()
	news := o.trouble != text
	o.trouble, o.critical = text, 0
	p.loads.mu.Unlock()
	switch {
	case err == nil:
		p.o.Logger.Warn("Copying has stopped at a critical load, until ehdbctl resume: {reason}",
			slog.String("scope", about(scope)), slog.String("reason", why))
	case news:
		p.o.Logger.Warn("Copying does not stop at a critical load: {error}", slog.String("scope", about(scope)),
			slog.String("reason", why), slog.Any("error", err))
	}
}

// about is a stream for people.
func about(scope cutover.Scope) string {
	if scope.Stream == "" {
		return "all streams"
	}
	return scope.String()
}

// goOn ends giving way to a load.
func (p *Pilot) goOn(scope cutover.Scope, why string) {
	p.loads.mu.Lock()
	o := p.loads.over[scope]
	was := o != nil && o.reason != ""
	if was {
		o.reason = ""
	}
	p.loads.mu.Unlock()
	if was {
		p.noteLoad(flip.EventGoOn, scope, why)
	}
}

func (p *Pilot) noteLoad(event flip.Event, scope cutover.Scope, why string) {
	err := p.engine.Note(&flip.Entry{Scope: scope, Event: event, By: "gateway", Reason: why})
	if err != nil {
		p.o.Logger.Error("The journal cannot be written: {error}", slog.Any("error", err))
	}
	p.wake()
}

// throttled is why what is behind of a stream is held back, by somebody's word or for a load; of all if scope is none.
func (p *Pilot) throttled(scope cutover.Scope) string {
	if scope.Stream != "" && !p.engine.MayWait(scope) {
		return ""
	}
	if t := p.engine.Throttled(scope); t.Reason != "" {
		return t.Reason + " (" + cmp.Or(t.By, "somebody") + ")"
	}
	p.loads.mu.Lock()
	defer p.loads.mu.Unlock()
	for _, s := range []cutover.Scope{scope, {}} {
		if o := p.loads.over[s]; o != nil && o.reason != "" {
			return o.reason
		}
	}
	return ""
}

// loadState is how the limits of a stream, or of all, are kept to; nil: there are none.
func (p *Pilot) loadState(scope cutover.Scope) *face.LoadState {
	l, is := p.engine.Limits()[scope]
	if !is {
		return nil
	}
	out := &face.LoadState{
		Max: l.Max, Critical: l.Critical, By: l.By, Reason: l.Reason, Since: l.Since, Measured: map[string]float64{},
	}
	p.loads.mu.Lock()
	defer p.loads.mu.Unlock()
	if o := p.loads.over[scope]; o != nil {
		maps.Copy(out.Measured, o.measured)
		out.Over = o.reason
	}
	return out
}

// limit sets the loads that copying gives way to, of a stream or of all.
func (p *Pilot) limit(scope cutover.Scope, r *face.Limits, by face.Actor) error {
	l := p.engine.Limits()[scope]
	if r.Max != nil {
		l.Max = *r.Max
	}
	if r.Critical != nil {
		l.Critical = *r.Critical
	}
	if err := face.CheckLoads(l.Max, l.Critical); err != nil {
		return fmt.Errorf("%w: %w", face.ErrRefused, err)
	}
	l.By, l.Reason = by.By, by.Reason
	return p.engine.SetLimits(scope, l)
}

// Throttle implements face.Engine.
func (p *Pilot) Throttle(_ context.Context, r face.ThrottleRequest) error {
	o := flip.MoveOptions{By: r.By, Reason: r.Reason}
	var err error
	switch {
	case r.Given():
		err = p.limit(r.Scope, &r.Limits, r.Actor)
	case r.Reason != "" && !r.Off:
		err = p.engine.Throttle(r.Scope, o)
	default:
		err = p.engine.Unthrottle(r.Scope, o)
	}
	p.wake()
	if errors.Is(err, cutover.ErrNoStream) {
		return unknown(err)
	}
	return refused(err)
}
