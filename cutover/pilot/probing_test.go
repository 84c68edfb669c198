package pilot

import (
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
	"github.com/noetl/ehdb-gateway/cutover/probe"
)

// What asking both sides comes to decides G7 and G11: for them, against them, or not at all.
func TestProbesDecideGates(t *testing.T) {
	differs := []parity.APIVerdict{{
		Subject: "$JS.API.STREAM.INFO.S", Differences: []parity.APIDifference{{Path: "state.messages", NATS: "3", EHDB: "2"}},
	}}
	for name, c := range map[string]struct {
		answers *probe.Answers
		unknown float64 // API subjects in use that nobody here serves
		slower  time.Duration
		n       int
		g7, g11 gate.State
	}{
		"alike":              {answers: &probe.Answers{Equal: 30}, slower: time.Millisecond, n: 1000, g7: gate.Pass, g11: gate.Pass},
		"an answer differs":  {answers: &probe.Answers{Equal: 29, Differ: 1, Differences: differs}, g7: gate.Fail, g11: gate.Unknown},
		"unknown in use":     {answers: &probe.Answers{Equal: 30}, unknown: 1, g7: gate.Fail, g11: gate.Unknown},
		"nothing was asked":  {g7: gate.Unknown, g11: gate.Unknown},
		"slower":             {answers: &probe.Answers{Equal: 30}, slower: 13 * time.Millisecond, n: 1000, g7: gate.Pass, g11: gate.Fail},
		"too few were timed": {answers: &probe.Answers{Equal: 30}, slower: time.Millisecond, n: 10, g7: gate.Pass, g11: gate.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			facts := &collector{facts: gate.Facts{}, now: now}
			if c.answers != nil {
				c.answers.At = now
				answersFact(facts, c.answers)
			}
			facts.put(gate.APIUnknown, c.unknown, "relay", "")
			facts.put(gate.Unsupported, 0, "configuration", "")
			there, here := times(c.n, 10*time.Millisecond, now), times(c.n, 10*time.Millisecond+c.slower, now)
			latencyFacts(facts, &there, &here)
			r := gate.Evaluate(facts.facts, cutover.Scope{}, gate.Options{Profile: gate.Production, Purpose: gate.Flip, Now: now})
			for _, g := range r.Gates {
				if want, ok := map[string]gate.State{"G7": c.g7, "G11": c.g11}[g.ID]; ok && g.State != want {
					t.Errorf("%s is %s (%s), want %s", g.ID, g.State, g.Reason, want)
				}
			}
		})
	}
}

// times are n measurements that all took d.
func times(n int, d time.Duration, at time.Time) probe.Times {
	out := probe.Times{At: at}
	for range n {
		out.Ack.Add(d, at)
		out.Deliver.Add(d, at)
	}
	return out
}
