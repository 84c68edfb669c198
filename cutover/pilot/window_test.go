package pilot

import (
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/window"
)

// Outside the change window G23 fails, says until when, and can be done without with a reason; without a window, or with
// a plan that was not approved, it is as the plan says.
func TestChangeWindow(t *testing.T) {
	w, err := window.Parse("Mon-Fri 09:00-16:00")
	if err != nil {
		t.Fatal(err)
	}
	monday := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at     time.Time
		list   window.Windows
		plan   float64
		want   gate.State
		reason string
	}{
		"open":           {monday, window.Windows{w}, 1, gate.Pass, ""},
		"closed":         {monday.Add(8 * time.Hour), window.Windows{w}, 1, gate.Fail, "closed until Tue 09:00 UTC: Mon-Fri 09:00-16:00"},
		"open, no plan":  {monday, window.Windows{w}, 0, gate.Fail, ""},
		"none":           {monday.Add(8 * time.Hour), nil, 1, gate.Pass, ""},
		"none, no plan":  {monday, nil, 0, gate.Fail, ""},
		"none, nor plan": {monday, nil, -1, gate.NotApplicable, ""},
	} {
		facts := &collector{facts: gate.Facts{}, now: c.at}
		facts.window(c.list)
		if facts.put(gate.PlanDigest, c.plan, "plan", ""); c.plan < 0 {
			facts.none(gate.PlanDigest, "no plan was approved")
		}
		for _, forced := range []map[string]string{nil, {"G23": "ticket"}} {
			r := gate.Evaluate(facts.facts, cutover.Scope{}, gate.Options{Now: c.at, Forced: forced})
			for _, g := range r.Gates {
				if g.ID != "G23" {
					continue
				}
				if g.State != c.want || !strings.Contains(g.Reason, c.reason) || (g.Forced != "") != (forced != nil && c.want == gate.Fail) {
					t.Errorf("%s, forced %v: %s (%s)", name, forced, g.State, g.Reason)
				}
			}
		}
	}
}
