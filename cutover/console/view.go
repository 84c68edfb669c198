package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// tone is how something looks. What is old is never good.
type tone string

const (
	good  tone = "good"
	warn  tone = "warn"
	bad   tone = "bad"
	idle  tone = "idle" // nothing to judge
	stale tone = "stale"
)

// Mark is the tone as a sign, since colour alone tells nothing to many.
func (t tone) Mark() string {
	return map[tone]string{good: "✓", warn: "▲", bad: "✗", idle: "–", stale: "◌"}[t]
}

// Word is what a tone says of moving streams.
func (t tone) Word() string {
	return map[tone]string{good: "GO", idle: "", warn: "NOT YET", bad: "NO-GO", stale: "STALE"}[t]
}

func (t tone) rank() int { return slices.Index([]tone{idle, good, stale, warn, bad}, t) }

// How old evidence may be.
const (
	maxAge         = 10 * time.Second // what is looked at all the time
	maxComparison  = 60 * time.Second // the comparison and its controls
	maxFences      = 10               // shown
	maxStreams     = 8                // shown in full; others are a link away
	saturated      = 0.7              // utilisation from which latency says nothing
	segmentsWidth  = 1000             // of the bar, in its own units
	smallestVisual = 4                // of a part of it that is not empty
)

// view is what the overview shows.
type view struct {
	Root    string
	Scope   string // of the one stream that is shown in full; "": the worst
	Now     time.Time
	Status  *face.Status
	Problem string    // why there is no newer status
	Stale   time.Time // since when nothing new is known; zero: it is fresh
	Tone    tone
	Verdict string
	Why     string // what is in the way
	Age     string // of the oldest comparison
	Streams []*stream
	Shown   []*stream
	Hidden  int

	Controls tone
	Detected int
	Findings []parity.Finding
	Dropped  uint64
	Timeline []face.Event // the latest first
}

// stream is a stream with what follows from its state.
type stream struct {
	face.StreamState
	v       *view
	ID      string
	Tone    tone
	Why     string
	Rail    []step
	Actions []action
	Bar     []segment
}

type step struct {
	Phase   face.Phase
	State   string // done, now, ahead
	Reverse bool   // the way back is open until here
}

// segment is a part of the parity bar.
type segment struct {
	State    parity.State
	N        uint64
	X, Width float64
}

func newView(l *look, now time.Time, root, scope string) *view {
	v := &view{
		Root: root, Scope: scope, Now: now, Status: l.status, Findings: l.findings, Dropped: l.dropped, Tone: idle,
		Controls: idle,
	}
	if l.status != nil {
		v.Timeline = timeline(l.events)
	}
	if l.err != nil {
		v.Problem = l.err.Error()
	}
	if v.Status == nil {
		v.Tone, v.Verdict = bad, "It is not known how the cutover stands"
		v.Why, v.Stale = v.Problem, now
		return v
	}
	if l.err != nil || now.Sub(v.Status.At) > maxAge {
		v.Stale = v.Status.At
	}
	for i := range v.Status.Streams {
		v.Streams = append(v.Streams, v.newStream(&v.Status.Streams[i]))
	}
	slices.SortStableFunc(v.Streams, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(b.Tone.rank(), a.Tone.rank()), cmp.Compare(b.Copy.LagMessages, a.Copy.LagMessages),
			strings.Compare(a.Scope.String(), b.Scope.String()))
	})
	v.choose()
	v.judgeControls()
	v.judge()
	return v
}

// choose shows the one that was asked for, or the worst ones.
func (v *view) choose() {
	for _, s := range v.Streams {
		if v.Scope == "" && len(v.Shown) < maxStreams || v.Scope == s.Scope.String() {
			v.Shown = append(v.Shown, s)
		}
	}
	v.Hidden = len(v.Streams) - len(v.Shown)
	if v.Scope != "" {
		v.Findings = slices.DeleteFunc(slices.Clone(v.Findings), func(f parity.Finding) bool {
			return f.Scope.String() != v.Scope
		})
	}
}

// fresh is good, or stale if it was so at a time too long ago.
func (v *view) fresh(at time.Time, most time.Duration) tone {
	if !v.Stale.IsZero() || v.Now.Sub(at) > most {
		return stale
	}
	return good
}

func (v *view) judgeControls() {
	c := &v.Status.Controls
	for _, k := range c.Controls {
		if k.Expected {
			v.Detected++
		}
	}
	switch {
	case len(c.Controls) == 0:
	case !c.OK:
		v.Controls = bad
	default:
		v.Controls = v.fresh(c.At, maxComparison)
	}
}

// judge makes the banner.
func (v *view) judge() {
	v.Tone, v.Verdict = good, v.Status.Verdict
	oldest := v.Now
	for _, s := range v.Streams {
		if s.Tone.rank() > v.Tone.rank() {
			v.Tone = s.Tone
		}
		if v.Why == "" && s.Why != "" {
			v.Why = s.Scope.String() + ": " + s.Why
		}
		if s.Parity != nil && s.Parity.At.Before(oldest) {
			oldest = s.Parity.At
		}
	}
	v.Age = ago(v.Now, oldest)
	switch {
	case v.Controls == bad:
		v.Tone, v.Why = bad, "the comparison does not detect what is put before it, so what it says is worth nothing"
	case len(v.Streams) == 0:
		v.Tone, v.Why = idle, "no stream is under watch"
	}
	if v.Verdict == "" {
		v.Verdict = fmt.Sprintf("%d streams are under watch", len(v.Streams))
	}
	if !v.Stale.IsZero() {
		v.Why = strings.TrimSuffix("nothing new is known since "+clock(v.Stale)+" UTC: "+v.Problem, ": ")
		if v.Tone == good {
			v.Tone = stale
		}
	}
}

func (v *view) newStream(st *face.StreamState) *stream {
	s := &stream{StreamState: *st, v: v}
	sum := sha256.Sum256([]byte(st.Scope.String()))
	s.ID = hex.EncodeToString(sum[:6])
	s.Tone, s.Why = s.judge()
	phases := []face.Phase{face.PhaseNATS, face.PhaseShadow, face.PhaseCanary, face.PhaseEHDB, face.PhaseComplete}
	now := slices.Index(phases, st.Phase)
	for i, p := range phases {
		k := step{Phase: p, State: "ahead", Reverse: st.ReversibleUntil == string(p)}
		switch {
		case i < now:
			k.State = "done"
		case i == now:
			k.State = "now"
		}
		s.Rail = append(s.Rail, k)
	}
	for _, verb := range st.Legal {
		s.Actions = append(s.Actions, actionOf(verb))
		if verb == "rollback" && st.Back.Possible && !st.Back.Lossless {
			s.Actions = append(s.Actions, actionOf(emergency))
		}
	}
	s.Bar = bar(st.Parity)
	return s
}

// judge finds the worst there is to say of a stream.
func (s *stream) judge() (tone, string) {
	p := s.Parity
	switch {
	case s.observedTrouble() != "":
		return bad, s.observedTrouble()
	case s.LastErr != "":
		return bad, s.LastErr
	case s.Leftover != "":
		return bad, s.Leftover
	case s.Copy.Error != "":
		return bad, "the copy does not follow: " + s.Copy.Error
	case s.Back.Possible && !s.Back.Lossless && s.ReversibleUntil != "":
		return bad, cmp.Or(s.Back.Why, "a rollback would lose messages")
	case !s.Copy.Conserved:
		return bad, "the queue of the copy has lost records"
	case p != nil && !p.Counts.Accounted():
		return bad, "the states of the comparison do not add up"
	case p != nil && p.Counts.Diverged() > 0:
		return bad, "sequences that differ: " + number(p.Counts.Diverged())
	case s.canaryInTrouble() != "":
		return warn, s.canaryInTrouble()
	case p != nil && p.Error != "":
		return warn, "it cannot be compared: " + p.Error
	case p != nil && s.v.Now.Sub(p.At) > maxComparison:
		return stale, "last compared " + ago(s.v.Now, p.At) + " ago"
	case s.NATS.Error != "" || s.EHDB.Error != "":
		return warn, cmp.Or(s.NATS.Error, s.EHDB.Error)
	}
	if g := s.Gates; g != nil && s.Phase != face.PhaseComplete {
		t, why := s.v.fresh(g.At, maxAge), ""
		switch g.Verdict {
		case gate.NoGo:
			t = bad
		case gate.NotEnough:
			t = warn
		case gate.Go:
		}
		if t != good {
			why = obstacles(g)
		}
		if s.Phase == face.PhaseEHDB && t != good {
			why = "served from here, not to be completed yet: " + why
			if t == bad {
				t = warn // nothing is wrong where it is
			}
		}
		return t, why
	}
	return s.v.fresh(s.v.Status.At, maxAge), ""
}

// observedTrouble is what is wrong with a flip that is observed; empty: nothing, or there is none.
func (s *stream) observedTrouble() string {
	switch o := s.Observed; {
	case o == nil:
		return ""
	case o.Kept != "":
		return "it was to be rolled back by itself, and was not: " + o.Kept
	case o.Failing != "":
		return "observed behind its flip, and failing: " + o.Failing
	}
	return ""
}

// canaryInTrouble is what is wrong with a consumer that is served from here; empty: nothing.
func (s *stream) canaryInTrouble() string {
	for i := range s.Canaries {
		if c := &s.Canaries[i]; c.Error != "" || c.Failing != "" {
			return "canary " + c.Consumer + ": " + cmp.Or(c.Error, c.Failing)
		}
	}
	return ""
}

// CanaryTone is that of a consumer that is served from here.
func (s *stream) CanaryTone(c *face.Canary) tone {
	switch {
	case c.Error != "":
		return bad
	case c.Failing != "":
		return warn
	case c.Mirrored.IsZero():
		return idle
	default:
		return s.v.fresh(c.Mirrored, maxAge)
	}
}

// obstacles names the gates that are in the way, the worst first and a few at most.
func obstacles(r *gate.Report) string {
	const most = 2
	var list []string
	for _, state := range []gate.State{gate.Fail, gate.Unknown, gate.Pending} {
		for i := range r.Gates {
			if g := &r.Gates[i]; g.State == state && g.Forced == "" {
				list = append(list, fmt.Sprintf("%s %s (%s)", g.ID, g.State, g.Title))
			}
		}
	}
	if n := len(list) - most; n > 0 {
		list = append(list[:most], "and "+number(n)+" more")
	}
	return strings.Join(list, ", ")
}

// gateList is some of the gates.
type gateList struct {
	Stream *stream
	Gates  []*gate.Result
}

// Blocking are the gates that are in the way, Passing the others.
func (s *stream) Blocking() gateList { return s.gates(true) }

// Passing are those that are not in the way.
func (s *stream) Passing() gateList { return s.gates(false) }

//nolint:revive // one of two lists
func (s *stream) gates(blocking bool) gateList {
	out := gateList{Stream: s}
	for i := range s.Gates.Gates {
		g := &s.Gates.Gates[i]
		blocks := g.Forced == "" && g.State != gate.Pass && g.State != gate.NotApplicable
		if blocks == blocking {
			out.Gates = append(out.Gates, g)
		}
	}
	return out
}

// GateTone is the tone of a gate.
func (s *stream) GateTone(g *gate.Result) tone {
	switch g.State {
	case gate.Pass:
		return s.v.fresh(s.Gates.At, maxAge)
	case gate.Fail:
		return bad
	case gate.Pending:
		return warn
	case gate.Unknown:
		return stale
	case gate.NotApplicable:
	}
	return idle
}

// BackTone is that of the rollback card.
func (s *stream) BackTone() tone {
	switch {
	case !s.Back.Possible || s.ReversibleUntil == "":
		return idle
	case !s.Back.Lossless:
		return bad
	default:
		return s.v.fresh(s.v.Status.At, maxAge)
	}
}

// DigestTone is that of the digests.
func (s *stream) DigestTone() tone {
	d := &s.Parity.Digest
	switch {
	case d.At.IsZero(): // nothing was compared yet
		return idle
	case !d.Equal:
		return bad
	case d.Through == 0:
		return idle
	default:
		return s.v.fresh(d.At, maxComparison)
	}
}

// ConsumerTone is that of a consumer.
func (s *stream) ConsumerTone(c *parity.ConsumerReport) tone {
	switch {
	case c.Stranded > 0:
		return bad
	case !c.Known || !c.Balanced || !c.Exact:
		return warn
	default:
		return s.v.fresh(s.Parity.DeliveryAt, maxComparison)
	}
}

// Masked tells latency that was measured while there was too much to do.
func (s *stream) Masked(l *face.Latency) bool { return l.Utilisation > saturated }

// bar lays out the states of a comparison. Each that has any is to be seen, so the large ones give way.
func bar(p *parity.Status) []segment {
	if p == nil || p.Counts.Examined == 0 {
		return nil
	}
	var out []segment
	var total float64
	for _, st := range parity.States() {
		if n := p.Counts.By[st]; n > 0 {
			w := max(float64(n)/float64(p.Counts.Examined)*segmentsWidth, smallestVisual)
			out = append(out, segment{State: st, N: n, Width: w})
			total += w
		}
	}
	var x float64
	for i := range out {
		out[i].Width *= segmentsWidth / total
		out[i].X = x
		x += out[i].Width
	}
	return out
}

// rung is a step of the ladder by which records come into the queue of the copy.
type rung struct {
	Name string
	N    uint64
	Now  bool // the last that was taken
}

// Rungs are the three rungs.
func (s *stream) Rungs() []rung {
	c := &s.Copy
	out := []rung{{Name: "try", N: c.Enqueued}, {Name: "wait", N: c.EnqueuedAfterWait}, {Name: "inline", N: c.Inline}}
	for i := range out {
		out[i].Now = out[i].Name == c.Rung
	}
	return out
}

// LatestFences are the fences, the latest first.
func (s *stream) LatestFences() []face.Fence {
	out := slices.Clone(s.Fences)
	slices.Reverse(out)
	return out[:min(len(out), maxFences)]
}

// Now is when it was looked.
func (s *stream) Now() time.Time { return s.v.Now }

// Root is where relative links begin.
func (s *stream) Root() string { return s.v.Root }
