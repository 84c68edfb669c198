package pilot

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// What only people can say is asked for, and nobody approves what they ask for themselves.
func TestApproval(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		q    question
		want gate.State
	}{
		{question{purpose: gate.Complete, by: "ann"}, gate.Pending},
		{question{purpose: gate.Complete, by: "ann", approver: "bob"}, gate.Pending},
		{question{purpose: gate.Complete, by: "ann", credentials: "the user orders"}, gate.Pending},
		{question{purpose: gate.Complete, by: "ann", approver: "ann", credentials: "the user orders"}, gate.Fail},
		{question{purpose: gate.Complete, by: "ann", approver: "bob", credentials: "the user orders"}, gate.Pass},
	} {
		c := &collector{facts: gate.Facts{}, now: now}
		for _, name := range []string{gate.BakeDays, gate.BakeRestarts} {
			c.put(name, 8, "test", "")
		}
		c.put(gate.ReverseLag, 0, "test", "")
		c.approval(&tc.q)
		r := gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Purpose: gate.Complete, Now: now})
		if g := r.Gates[len(r.Gates)-1]; g.ID != "G24" || g.State != tc.want {
			t.Errorf("%+v: %s %s (%s), want %s", tc.q, g.ID, g.State, g.Reason, tc.want)
		}
	}
}

// After a flip the chain finds what comes around the gateway.
func TestForkedChain(t *testing.T) {
	for err, want := range map[error]float64{nil: 0, reverse.ErrForked: 1, errors.New("no server"): 0} {
		c := &collector{facts: gate.Facts{}, now: time.Now()}
		c.forked(&reverse.Status{Err: err})
		if f := c.facts[gate.BypassHoles]; f.Value != want || f.Source != "chain" {
			t.Errorf("%v: %+v", err, f)
		}
	}
}

// With an approvers' token a name is no approval: what was approved with it counts for an hour, and not of who asks.
func TestApprovalByToken(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for name, tc := range map[string]struct {
		by, approver string
		at           *time.Time
		want         gate.State
	}{
		"nobody":  {"ann", "", ago(0), gate.Pending},
		"bob":     {"ann", "bob", ago(time.Minute), gate.Pass},
		"old":     {"ann", "bob", ago(2 * time.Hour), gate.Pending},
		"herself": {"ann", "ann", ago(time.Minute), gate.Fail},
	} {
		c := &collector{facts: gate.Facts{}, now: now}
		c.approval(&question{purpose: gate.Complete, by: tc.by, approver: tc.approver, approved: tc.at, credentials: "x"})
		r := gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Purpose: gate.Complete, Now: now})
		for _, k := range r.Gates[len(r.Gates)-1].Checks {
			if k.Fact == gate.SecondApprover && (k.State != tc.want || k.State == gate.Pending && !strings.Contains(k.Detail, "ehdbctl approve")) {
				t.Errorf("%s: %+v", name, k)
			}
		}
	}
}
