package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

var (
	now   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	scope = cutover.Scope{Account: "$G", Stream: "S"}
)

// good are facts with which every gate passes.
func good(p Profile) Facts {
	f := Facts{}
	for _, g := range table {
		for _, c := range g.checks {
			limit, n := c.limit.production, c.n.production
			if p == Drill {
				limit, n = c.limit.drill, c.n.drill
			}
			f[c.fact] = Fact{Value: limit, N: uint64(n), At: now, Source: "test"}
		}
	}
	return f
}

func evaluate(f Facts, p Profile, purpose Purpose) Report {
	return Evaluate(f, scope, Options{Profile: p, Purpose: purpose, Now: now})
}

func of(r Report, id string) Result {
	return r.Gates[slices.IndexFunc(r.Gates, func(g Result) bool { return g.ID == id })]
}

func TestAllGatesAreThere(t *testing.T) {
	r := evaluate(good(Production), Production, Complete)
	for i := range 24 {
		if i >= len(r.Gates) || r.Gates[i].ID != fmt.Sprintf("G%d", i+1) || r.Gates[i].State != Pass {
			t.Fatalf("%d: %+v", i+1, r.Gates)
		}
	}
	if r.Verdict != Go || r.Verdict.ExitCode() != 0 || r.Summary() != "GO" {
		t.Fatal(r.Summary())
	}
	if n := len(evaluate(good(Drill), Drill, Flip).Gates); n != 23 {
		t.Fatalf("%d gates for a flip", n)
	}
	for _, id := range []string{"G1", "G2", "G3", "G4", "G8", "G9", "G21"} {
		if of(r, id).Forceable {
			t.Errorf("%s can be forced", id)
		}
	}
	names := FactNames()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(FactNames()) {
		t.Error("two checks ask for the same fact")
	}
}

// Every check of every gate, in every profile: absent and old facts are not green, and a bad one fails.
func TestEveryCheckCounts(t *testing.T) {
	for _, p := range []Profile{Production, Drill} {
		for _, g := range table {
			fails := false
			for _, c := range g.checks {
				want := func(name string, f Facts, state State, verdict Verdict) {
					t.Helper()
					r := evaluate(f, p, Complete)
					if got := of(r, g.id); got.State != state || r.Verdict != verdict {
						t.Errorf("%s %s, %s %s: %s, %s; want %s, %s", p, g.id, c.fact, name, got.State, r.Verdict,
							state, verdict)
					}
				}
				f := good(p)
				delete(f, c.fact)
				want("absent", f, Unknown, NotEnough)

				change := func(fn func(*Fact)) Facts {
					f := good(p)
					v := f[c.fact]
					fn(&v)
					f[c.fact] = v
					return f
				}
				age := c.age.production
				if p == Drill {
					age = c.age.drill
				}
				old := Unknown
				if c.expires {
					old = Pending
				}
				want(
					"old",
					change(func(v *Fact) { v.At = now.Add(-time.Duration(age+1) * time.Second) }),
					old,
					NotEnough,
				)
				want("no time", change(func(v *Fact) { v.At = time.Time{} }), Unknown, NotEnough)
				if v := change(func(v *Fact) { v.N-- }); good(p)[c.fact].N > 0 {
					want("too few", v, Pending, NotEnough)
				}
				bad := change(func(v *Fact) {
					if c.op == atLeast {
						v.Value -= 0.5
					} else {
						v.Value += 0.5
					}
				})
				if c.grows {
					want("bad", bad, Pending, NotEnough)
				} else {
					want("bad", bad, Fail, NoGo)
					fails = true
				}
				want("lapsed", change(func(v *Fact) { v.Lapsed = "of another image" }), Pending, NotEnough)
				other := change(func(v *Fact) { v.NotApplicable, v.Value = "no such thing here", -1 })
				if g.id != "G1" {
					state := Pass
					if len(g.checks) == 1 {
						state = NotApplicable
					}
					want("not applicable", other, state, Go)
				}
			}
			if !fails {
				t.Errorf("%s cannot fail", g.id)
			}
		}
	}
}

func TestFailedControlsVoidTheComparison(t *testing.T) {
	f := good(Production)
	f[ControlsOKTicks] = Fact{Value: 0, At: now, Source: "parity", Detail: "missing"}
	r := evaluate(f, Production, Flip)
	if r.Verdict != NoGo || of(r, "G1").State != Fail || of(r, "G1").Reason != "missing" {
		t.Fatalf("%+v", of(r, "G1"))
	}
	for _, id := range []string{"G2", "G3", "G4", "G5"} {
		if of(r, id).State != Unknown {
			t.Errorf("%s is %s", id, of(r, id).State)
		}
	}
}

func TestForce(t *testing.T) {
	f := good(Production)
	f[PublishP99] = Fact{Value: 3, N: 5000, At: now, Source: "test"}
	f[Stranded] = Fact{Value: 1, At: now, Source: "test"}
	o := Options{Now: now, Forced: map[string]string{"G11": "case 12", "G4": "never"}}
	r := Evaluate(f, scope, o)
	if r.Verdict != NoGo || of(r, "G11").Forced != "case 12" || of(r, "G4").Forced != "" {
		t.Fatalf("%s %+v", r.Summary(), of(r, "G11"))
	}
	if !strings.Contains(r.Summary(), "FAIL G4)") {
		t.Fatal(r.Summary())
	}
	f[Stranded] = Fact{At: now, Source: "test"}
	if r := Evaluate(f, scope, o); r.Verdict != Go {
		t.Fatal(r.Summary())
	}
	o = Options{Now: now, Thresholds: map[string]float64{"G11/" + PublishP99: 4}}
	if r := Evaluate(f, scope, o); r.Verdict != Go || of(r, "G11").Forced != "" {
		t.Fatal("a threshold of the configuration does not count")
	}
}

func TestVerdicts(t *testing.T) {
	if Go.ExitCode() != 0 || NoGo.ExitCode() != 2 || NotEnough.ExitCode() != 3 {
		t.Fatal("exit codes")
	}
	if NoGo.with(Unknown) != NoGo || NotEnough.with(Fail) != NoGo ||
		NotEnough.with(Pass) != NotEnough {
		t.Fatal("a verdict gets better")
	}
	if r := Evaluate(Facts{}, scope, Options{Now: now}); r.Verdict != NotEnough {
		t.Fatal("nothing known is", r.Verdict)
	}
	if _, err := ParseProfile("strict"); err == nil {
		t.Fatal("a profile that does not exist")
	}
}

// What parity says becomes facts: an engine that saw nothing gives none.
func TestFactsOfParity(t *testing.T) {
	if f := (&Comparison{Now: now}).Facts(); len(f) != 0 {
		t.Fatalf("nothing was compared: %v", slices.Sorted(maps.Keys(f)))
	}
	at := now.Add(-time.Second)
	c := Comparison{
		Now: now, Since: now.Add(-25 * time.Hour), FenceBudget: 1500 * time.Millisecond,
		Controls: parity.SelfTest{
			OK:       true,
			OKTicks:  3,
			At:       at,
			Controls: []parity.Control{{Name: "missing", Expected: true}},
		},
		Status: parity.Status{
			At: at, Attached: now.Add(-time.Hour), Complete: at, Window: 5, DeliveryAt: at,
			Digest: parity.Digest{Equal: true, At: at}, Lag: parity.LagStatus{P99: .4, N: 500},
			Reasons: map[string]uint64{"copy_unreadable": 2},
			Consumers: []parity.ConsumerReport{
				{Consumer: "fine", Known: true, Balanced: true, Exact: true, LastDelivery: at, NumPending: 3},
				{
					Consumer:     "frozen",
					Known:        true,
					Balanced:     true,
					Exact:        true,
					LastDelivery: at.Add(-2 * time.Minute),
					NumPending:   3,
				},
				{
					Consumer:     "passed over",
					Known:        true,
					Stranded:     2,
					StrandedSeqs: []uint64{7, 9},
					Drift:        2,
					Exact:        true,
				},
			},
		},
	}
	c.Status.Counts.Examined, c.Status.Counts.By[parity.Match], c.Status.Counts.By[parity.NotComparable] = 20_002, 20_000, 2
	r := Evaluate(All{Facts{}, c.Facts()}, scope, Options{Now: now})
	for id, want := range map[string]State{
		"G1": Pass, "G2": Pass, "G3": Pass, "G4": Fail, "G5": Fail, "G9": Pass, "G10": Fail, "G6": Unknown,
	} {
		if g := of(r, id); g.State != want {
			t.Errorf("%s is %s, not %s: %+v", id, g.State, want, g)
		}
	}
	if g := of(r, "G10"); !strings.Contains(g.Reason, "frozen") {
		t.Errorf("the consumer that stands still is not named: %+v", g)
	}
	few := c
	few.Status.Counts.Examined, few.Status.Counts.By[parity.Match] = 134, 132
	if g := of(Evaluate(few.Facts(), scope, Options{Now: now}), "G2"); g.State != Pass {
		t.Errorf("all of the few messages were compared for a day, and %+v", g)
	}
	few.Since = now.Add(-23 * time.Hour)
	if g := of(Evaluate(few.Facts(), scope, Options{Now: now}), "G2"); g.State != Pending {
		t.Errorf("few messages, not compared for a day yet, and %+v", g)
	}
	c.Waivers = []Waiver{{Reason: "copy_unreadable", Why: "case 3", Expires: now.Add(time.Hour)}}
	if g := of(Evaluate(c.Facts(), scope, Options{Now: now}), "G5"); g.State != Pass {
		t.Errorf("waived, and %+v", g)
	}
	if d := c.Facts()[NotCompared].Detail; !strings.Contains(d, "copy_unreadable is waived until") || !strings.HasSuffix(d, ": case 3") {
		t.Errorf("it is not said what is waived: %s", d)
	}
	c.Waivers[0].Expires = now
	if g := of(Evaluate(c.Facts(), scope, Options{Now: now}), "G5"); g.State != Fail {
		t.Errorf("the waiver has expired, and %+v", g)
	}
}

// Without a way back G21 says so, and is not in the way; a reason for forcing it does not do that.
func TestNoWayBack(t *testing.T) {
	now := time.Now()
	facts := Facts{ReverseProven: {At: now, Source: "flip", Detail: "none is kept"}}
	g21 := func(o Options) (Result, string) {
		o.Now = now
		r := Evaluate(facts, cutover.Scope{}, o)
		for _, g := range r.Gates {
			if g.ID == "G21" {
				return g, r.Summary()
			}
		}
		t.Fatal("no G21")
		return Result{}, ""
	}
	g, sum := g21(Options{Forced: map[string]string{"G21": "please"}})
	if g.State != Fail || g.Forced != "" || !strings.Contains(sum, "FAIL G21") {
		t.Errorf("%+v %s", g, sum)
	}
	g, sum = g21(Options{NoWayBack: "--no-reverse-shadow"})
	if g.State != Fail || g.Forced != "--no-reverse-shadow" || g.Reason != "none is kept" || strings.Contains(sum, "G21") {
		t.Errorf("%+v %s", g, sum)
	}
}
