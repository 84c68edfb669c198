package pilot

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// An autoscaler that is paused, or has no HPA, fails G19 though it asks; where autoscalers cannot be looked at, that is
// said, and where there are none nobody is waited for.
func TestScaledObjectsDecideG19(t *testing.T) {
	now := time.Now()
	asks := []face.Scrape{{Agent: "Go-http-client/1.1", Addr: "10.0.0.4", At: now, Count: 9}}
	for name, tc := range map[string]struct {
		scrapes  []face.Scrape
		n        int
		problems []string
		err      error
		want     gate.State
		reason   string
	}{
		"asks, all is well": {asks, 1, nil, nil, gate.Pass, ""},
		"asks, paused":      {asks, 1, []string{"orders is paused"}, nil, gate.Fail, "orders is paused"},
		"has not asked":     {nil, 1, nil, nil, gate.Pending, "no autoscaler has asked"},
		"has no HPA":        {nil, 1, []string{"orders has no HPA"}, nil, gate.Fail, "orders has no HPA"},
		"there is none":     {nil, 0, nil, nil, gate.NotApplicable, "no ScaledObject"},
		"not to be read":    {asks, 0, nil, errors.New("403"), gate.Pass, "are not looked at: 403"},
		"nor asked":         {nil, 0, nil, errors.New("403"), gate.Pending, "are not looked at: 403"},
	} {
		c := &collector{facts: gate.Facts{}, now: now}
		c.watchers(tc.scrapes, true)
		c.scaled(tc.n, tc.problems, tc.err)
		for _, g := range gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Now: now}).Gates {
			if g.ID == "G19" && (g.State != tc.want || !strings.Contains(g.Reason, tc.reason)) {
				t.Errorf("%s: %s (%s)", name, g.State, g.Reason)
			}
		}
	}
}
