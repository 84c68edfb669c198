package pilot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/origin"
)

// gateOf is the gate that rests on a kind of drill.
var gateOf = map[string]string{
	drill.RestartWriter: "G12", drill.KillGateway: "G13", drill.Partition: "G13", drill.Stepdown: "G13", drill.FlipAndBack: "G14",
}

// TestDrillsDecideGates: a gate passes with the evidence that it asks for, fails when a drill has failed, and waits for
// another when that has expired or is of another program; all of it also after the process was killed.
func TestDrillsDecideGates(t *testing.T) {
	for _, kind := range drill.Kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			p := &Pilot{}
			open := func() {
				t.Helper()
				var err error
				if p.drills.log, err = drill.OpenLog(dir); err != nil {
					t.Fatal(err)
				}
			}
			open()
			outcome := func(kind string, state drill.State, change func(*drill.Drill)) {
				t.Helper()
				d, err := p.drills.log.Begin(drill.Drill{Kind: kind, Image: drill.Image()})
				if err == nil {
					_, err = p.drills.log.End(d.ID, state, "because")
				}
				if err == nil && change != nil {
					_, err = p.drills.log.Change(d.ID, func(d *drill.Drill) error { change(d); return nil })
				}
				if err != nil {
					t.Fatal(err)
				}
				open() // as a process does that was started again
			}
			want := func(what string, state gate.State, reason string) {
				t.Helper()
				c := &collector{facts: gate.Facts{}, now: time.Now()}
				p.drillFacts(c)
				r := gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Profile: gate.Production, Now: c.now})
				for _, g := range r.Gates {
					if g.ID == gateOf[kind] && (g.State != state || !strings.Contains(g.Reason, reason)) {
						t.Errorf("%s: %s is %s (%s), want %s (%s)", what, g.ID, g.State, g.Reason, state, reason)
					}
				}
			}
			for other, id := range gateOf { // what the gate asks for besides
				if other != kind && id == gateOf[kind] {
					outcome(other, drill.Passed, nil)
				}
			}
			want("never carried out", gate.Unknown, "not measured")
			outcome(kind, drill.Passed, nil)
			want("passed", gate.Pass, "")
			outcome(kind, drill.Failed, nil)
			want("failed", gate.Fail, kind+": because")
			outcome(kind, drill.Passed, nil)
			want("passed again", gate.Pass, "")
			if _, err := p.drills.log.Begin(drill.Drill{Kind: kind, Image: drill.Image()}); err != nil {
				t.Fatal(err)
			}
			want("running", gate.Pass, "")
			open() // it has ended the process, or the process has ended it
			want("interrupted", gate.Fail, "in the middle")
			outcome(kind, drill.Passed, func(d *drill.Drill) {
				d.Ended = d.Ended.Add(-drill.Valid(kind) - time.Second)
				d.Expires = d.Expires.Add(-drill.Valid(kind) - time.Second)
			})
			want("expired", gate.Pending, "it has expired; ehdbctl drill "+kind)
			if list := p.Drills(); list[len(list)-1].Lapsed == "" || list[len(list)-1].Age < drill.Valid(kind).Seconds() {
				t.Errorf("%+v", list[len(list)-1])
			}
			outcome(kind, drill.Passed, nil)
			want("gathered again", gate.Pass, "")
		})
	}
}

// TestDrillOfAnotherImage: what another program has passed is no evidence for this one.
func TestDrillOfAnotherImage(t *testing.T) {
	p := &Pilot{}
	var err error
	if p.drills.log, err = drill.OpenLog(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	d, err := p.drills.log.Begin(drill.Drill{Kind: drill.RestartWriter, Image: "another", Version: "1.0"})
	if err == nil {
		_, err = p.drills.log.End(d.ID, drill.Passed, "lost 0")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{facts: gate.Facts{}, now: time.Now()}
	p.drillFacts(c)
	for _, g := range gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Now: c.now}).Gates {
		if g.ID == "G12" && (g.State != gate.Pending || !strings.Contains(g.Reason, "another image (1.0, another)")) {
			t.Errorf("%+v", g)
		}
	}
}

// TestStepdownIsNotApplicable: a single server has no leader to choose. That is looked at, not remembered.
func TestStepdownIsNotApplicable(t *testing.T) {
	p := &Pilot{}
	var err error
	if p.drills.log, err = drill.OpenLog(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{drill.KillGateway, drill.Partition, drill.Stepdown} {
		d, err := p.drills.log.Begin(drill.Drill{Kind: kind, Image: drill.Image()})
		if err == nil {
			state := drill.Passed
			if kind == drill.Stepdown {
				state = drill.NotApplicable
			}
			_, err = p.drills.log.End(d.ID, state, singleServer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for single, want := range map[bool]gate.State{true: gate.Pass, false: gate.Unknown} {
		c := &collector{facts: gate.Facts{}, now: time.Now()}
		if single {
			c.none(gate.DrillStepdown, singleServer)
		}
		p.drillFacts(c)
		for _, g := range gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Now: c.now}).Gates {
			if g.ID == "G13" && g.State != want {
				t.Errorf("single %t: %+v", single, g)
			}
		}
	}
}

// TestDrillsThatAreRefused: with the reason, and what to do.
func TestDrillsThatAreRefused(t *testing.T) {
	for i, c := range []struct {
		o       Options
		kind    string
		account string
		want    string
	}{
		{Options{Mode: ModeNATS}, drill.FlipAndBack, "$G", "bus mode nats"},
		{Options{Mode: ModeShadow}, drill.KillGateway, "$G", "bus { drills: true }"},
		{Options{Mode: ModeShadow}, drill.RestartWriter, "$G", "bus { drills: true }"},
		{Options{Mode: ModeShadow}, drill.Partition, "$G", "bus { drills: true }"},
		{Options{Mode: ModeShadow}, drill.Stepdown, "B", "no login of its own in account B"},
		{Options{Mode: ModeShadow, Faults: drill.Faults{Allowed: true}}, drill.KillGateway, "$G", ""},
		{Options{Mode: ModeShadow}, drill.Stepdown, "$G", ""},
	} {
		c.o.Conns = map[string]*origin.Conn{"$G": {}}
		err := (&Pilot{o: c.o}).mayDrill(c.kind, c.account)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, face.ErrRefused) || !strings.Contains(fmt.Sprint(err), c.want)) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
}

// TestStagesOfDrills: what comes too late, or too early, is told where the drill is.
func TestStagesOfDrills(t *testing.T) {
	p := &Pilot{o: Options{Mode: ModeShadow, Faults: drill.Faults{Allowed: true}, Conns: map[string]*origin.Conn{"$G": {}}}}
	var err error
	if p.drills.log, err = drill.OpenLog(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	d, err := p.drills.log.Begin(drill.Drill{Kind: drill.Partition, Scope: cutover.Scope{Account: "$G", Stream: "S"}})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(want string) {
		t.Helper()
		_, fault := p.DrillFault(t.Context(), face.DrillFaultRequest{ID: d.ID})
		_, report := p.DrillReport(t.Context(), face.DrillReportRequest{ID: d.ID})
		for _, err := range []error{fault, report} {
			if !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	refused(`drill 1 is at step "preparing"`)
	if _, err := p.drills.log.End(d.ID, drill.Passed, "0 lost"); err != nil {
		t.Fatal(err)
	}
	refused("drill 1 has ended, passed: 0 lost; for another: ehdbctl drill partition --scope '$G/S'")
}
