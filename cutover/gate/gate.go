package gate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// State of a gate or a check.
type State string

// States, from the best to the one that counts most when checks of a gate differ.
const (
	NotApplicable State = "NOT_APPLICABLE"
	Pass          State = "PASS"
	Pending       State = "PENDING" // on its way: Value of Threshold
	Unknown       State = "UNKNOWN" // not measured, or too long ago
	Fail          State = "FAIL"
)

var severity = []State{NotApplicable, Pass, Pending, Unknown, Fail}

func worse(a, b State) State {
	if slices.Index(severity, b) > slices.Index(severity, a) {
		return b
	}
	return a
}

// Fact is something that was measured. Yes and no are 1 and 0.
type Fact struct {
	Value  float64   `json:"value"`
	N      uint64    `json:"n,omitempty"` // of how many
	At     time.Time `json:"at"`          // when it was so
	Source string    `json:"source"`
	Detail string    `json:"detail,omitempty"` // the evidence, in words
	// NotApplicable says why the question does not arise here.
	NotApplicable string `json:"not_applicable,omitempty"`
	// Lapsed says why it does not count any more, whatever its age: it is to be gathered again.
	Lapsed string `json:"lapsed,omitempty"`
}

// Inputs know facts by name.
type Inputs interface {
	// Fact returns what is known of a stream by that name; ok is false when nothing is.
	Fact(scope cutover.Scope, name string) (f Fact, ok bool)
}

// Facts are facts of one stream.
type Facts map[string]Fact

// Fact implements Inputs.
func (f Facts) Fact(_ cutover.Scope, name string) (Fact, bool) {
	v, ok := f[name]
	return v, ok
}

// All looks for a fact in one after the other.
type All []Inputs

// Fact implements Inputs.
func (a All) Fact(scope cutover.Scope, name string) (Fact, bool) {
	for _, in := range a {
		if f, ok := in.Fact(scope, name); ok {
			return f, true
		}
	}
	return Fact{}, false
}

// Yes is 1 for true.
func Yes(b bool) float64 { //nolint:revive // it is a conversion
	if b {
		return 1
	}
	return 0
}

// Profile says how strict the gates are.
type Profile string

// Profiles.
const (
	Production Profile = "production"
	Drill      Profile = "drill" // for demonstrations and tests: the same gates with less patience
)

// ParseProfile takes the name of a profile; nothing is production.
func ParseProfile(s string) (Profile, error) {
	switch p := Profile(s); p {
	case "":
		return Production, nil
	case Production, Drill:
		return p, nil
	}
	return "", fmt.Errorf("no gate profile %q: there are %s and %s", s, Production, Drill)
}

// by is a number for each profile.
type by struct{ production, drill float64 }

func same(v float64) by { return by{v, v} }

// op compares a fact with its threshold.
type op string

const (
	atMost  op = "<="
	atLeast op = ">="
	is      op = "="
)

func (o op) holds(v, limit float64) bool {
	switch o {
	case atMost:
		return v <= limit
	case atLeast:
		return v >= limit
	case is:
		return v == limit
	}
	return false
}

// check compares one fact with its threshold.
type check struct {
	fact  string
	op    op
	limit by
	// age is how old the fact may be, in seconds.
	age by
	// n is how many must have been measured.
	n by
	// grows: below the threshold it is PENDING, since time mends it.
	grows bool
	// expires: evidence that is too old is PENDING, to be gathered again, rather than UNKNOWN.
	expires bool
}

// gate is a row of the table.
type gate struct {
	id, title string
	forceable bool
	parity    bool // it rests on the comparison, so on its controls
	complete  bool // it is for complete only
	checks    []check
}

// Purpose is what the gates are asked for.
type Purpose string

// Purposes.
const (
	Flip     Purpose = "flip"
	Complete Purpose = "complete"
)

// Options of an evaluation.
type Options struct {
	Profile Profile
	Purpose Purpose
	Now     time.Time
	// Thresholds replace those of the profile, by gate and fact ("G2/parity.examined").
	Thresholds map[string]float64
	// Forced are gates that somebody has decided to do without, with the reason. Only forceable ones count.
	Forced map[string]string
	// NoWayBack says why none is wanted: then G21, which says that there is none, is not in the way.
	NoWayBack string
}

// CheckResult is what became of a check.
type CheckResult struct {
	Fact      string  `json:"fact"`
	State     State   `json:"state"`
	Value     float64 `json:"value"`
	Op        string  `json:"op"`
	Threshold float64 `json:"threshold"`
	N         uint64  `json:"n"`
	NeedN     uint64  `json:"need_n,omitempty"`
	Age       float64 `json:"age_seconds"`
	MaxAge    float64 `json:"max_age_seconds"`
	Source    string  `json:"source,omitempty"`
	Detail    string  `json:"detail,omitempty"`
}

// Result is what became of a gate. Value, threshold, n, age and source are those of the check that decided.
type Result struct {
	ID        string        `json:"id"`
	Title     string        `json:"title"`
	State     State         `json:"state"`
	Value     string        `json:"value"`
	Threshold string        `json:"threshold"`
	N         uint64        `json:"n"`
	Age       float64       `json:"age_seconds"`
	Source    string        `json:"source,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Forceable bool          `json:"forceable"`
	Forced    string        `json:"forced,omitempty"` // why it was done without
	Checks    []CheckResult `json:"checks"`
}

// Verdict of all gates.
type Verdict string

// Verdicts.
const (
	Go        Verdict = "GO"
	NoGo      Verdict = "NO-GO"
	NotEnough Verdict = "NOT ENOUGH EVIDENCE"
)

// ExitCode is that of `ehdbctl gates`: 0, 2 and 3.
func (v Verdict) ExitCode() int {
	switch v {
	case Go:
		return 0
	case NoGo:
		return 2
	case NotEnough:
	}
	return 3
}

// Report is the outcome of all gates.
type Report struct {
	Scope   cutover.Scope `json:"scope"`
	Profile Profile       `json:"profile"`
	Purpose Purpose       `json:"purpose"`
	Verdict Verdict       `json:"verdict"`
	At      time.Time     `json:"at"`
	Gates   []Result      `json:"gates"`
}

// Summary says the verdict and what is in its way, in a line.
func (r *Report) Summary() string {
	var parts []string
	for _, s := range []State{Fail, Unknown, Pending} {
		var ids []string
		for _, g := range r.Gates {
			if g.State == s && g.Forced == "" {
				ids = append(ids, g.ID)
			}
		}
		if len(ids) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", s, strings.Join(ids, " ")))
		}
	}
	if len(parts) == 0 {
		return string(r.Verdict)
	}
	return string(r.Verdict) + " (" + strings.Join(parts, ", ") + ")"
}

// Evaluate computes the gates of a stream.
func Evaluate(in Inputs, scope cutover.Scope, o Options) Report {
	if o.Profile == "" {
		o.Profile = Production
	}
	if o.Purpose == "" {
		o.Purpose = Flip
	}
	r := Report{Scope: scope, Profile: o.Profile, Purpose: o.Purpose, At: o.Now, Verdict: Go}
	controls := Unknown
	for i := range table {
		g := &table[i]
		if g.complete && o.Purpose != Complete {
			continue
		}
		res := g.evaluate(in, scope, &o)
		if g.id == "G1" {
			controls = res.State
		}
		if g.parity && controls != Pass {
			res.State = Unknown
			res.Reason = fmt.Sprintf("the controls (G1) are %s, so what the comparison says is worth nothing", controls)
		}
		if why := o.waived(g); why != "" && res.State != Pass && res.State != NotApplicable {
			res.Forced = why
		} else {
			r.Verdict = r.Verdict.with(res.State)
		}
		r.Gates = append(r.Gates, res)
	}
	return r
}

// waived is why a gate is done without; empty: it is not.
func (o *Options) waived(g *gate) string {
	switch {
	case g.id == wayBack:
		return o.NoWayBack
	case g.forceable:
		return o.Forced[g.id]
	}
	return ""
}

// with takes one more gate in.
func (v Verdict) with(s State) Verdict {
	switch {
	case s == Fail || v == NoGo:
		return NoGo
	case s == Unknown || s == Pending:
		return NotEnough
	}
	return v
}

func (g *gate) evaluate(in Inputs, scope cutover.Scope, o *Options) Result {
	res := Result{ID: g.id, Title: g.title, State: NotApplicable, Forceable: g.forceable}
	decided := -1
	for i := range g.checks {
		c := g.checks[i].evaluate(in, scope, g.id, o)
		res.Checks = append(res.Checks, c)
		if s := worse(res.State, c.State); decided < 0 || s != res.State {
			res.State, decided = s, i
		}
	}
	c := &res.Checks[decided]
	res.Value, res.Threshold = number(c.Value), c.Op+" "+number(c.Threshold)
	res.N, res.Age, res.Source, res.Reason = c.N, c.Age, c.Source, c.Detail
	if res.State == Pending && c.NeedN > c.N {
		res.Value, res.Threshold = "n "+strconv.FormatUint(c.N, 10), "n >= "+strconv.FormatUint(c.NeedN, 10)
	}
	if res.State == Unknown && c.Source == "" {
		res.Value = "-"
	}
	return res
}

func (c *check) evaluate(in Inputs, scope cutover.Scope, id string, o *Options) CheckResult {
	limit, age, n := c.limit.production, c.age.production, c.n.production
	if o.Profile == Drill {
		limit, age, n = c.limit.drill, c.age.drill, c.n.drill
	}
	if v, ok := o.Thresholds[id+"/"+c.fact]; ok {
		limit = v
	}
	r := CheckResult{Fact: c.fact, Op: string(c.op), Threshold: limit, MaxAge: age, NeedN: uint64(n)}
	f, ok := in.Fact(scope, c.fact)
	if !ok {
		r.State, r.Detail = Unknown, c.fact+" is not measured"
		return r
	}
	r.Value, r.N, r.Source, r.Detail = f.Value, f.N, f.Source, f.Detail
	r.Age = max(0, o.Now.Sub(f.At).Seconds()) // some are newer than the question
	switch {
	case f.NotApplicable != "":
		r.State, r.Detail = NotApplicable, f.NotApplicable
	case f.At.IsZero():
		r.State, r.Age, r.Detail = Unknown, 0, c.fact+" has no time"
	case f.Lapsed != "":
		r.State, r.Detail = Pending, f.Lapsed
	case r.Age > age && c.expires:
		r.State, r.Detail = Pending, "the evidence has expired: gather it again"
	case r.Age > age:
		r.State, r.Detail = Unknown, fmt.Sprintf("%s is %s old: nobody measures it any more", c.fact, seconds(r.Age))
	case r.N < r.NeedN:
		r.State = Pending
	case c.op.holds(f.Value, limit):
		r.State = Pass
	case c.grows:
		r.State = Pending
	default:
		r.State = Fail
	}
	return r
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }
