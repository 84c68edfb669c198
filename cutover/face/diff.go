package face

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Diff is what is known of a stream's comparison, with the full ones, the latest last.
type Diff struct {
	Status parity.Status `json:"status"`
	Runs   []parity.Run  `json:"runs"`
}

// FindingList is a list of findings.
type FindingList struct {
	Findings []parity.Finding `json:"findings"`
	Dropped  uint64           `json:"dropped"` // for which there was no room
	// Redacted: payloads and headers are left out, since the operator's token was not given.
	Redacted bool `json:"redacted"`
}

// parity returns the comparison, or why there is none.
func (a *api) parity() (*parity.Engine, error) {
	if e := a.Engine.Parity(); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("nothing is compared in this bus mode: %w", ErrUnknown)
}

func (a *api) diff(r *http.Request) (any, error) {
	scope, err := scopeOf(r)
	if err != nil {
		return nil, err
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	var d Diff
	if d.Status, err = e.Status(scope); err != nil {
		return nil, err
	}
	d.Runs, err = e.Runs(scope)
	return d, err
}

// DiffRequest asks to begin or stop a comparison of all of a stream, or of a part of it.
type DiffRequest struct {
	Actor
	Scope  cutover.Scope `json:"scope"`
	Action string        `json:"action"` // create, stop
	// Since compares what is newer than that ago, Sample so many percent of the blocks; neither: all.
	Since  time.Duration `json:"since,omitempty"`
	Sample float64       `json:"sample,omitempty"`
}

func (a *api) diffRun(r *http.Request) (any, error) {
	var q DiffRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := q.sensible(); err != nil {
		return nil, err
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	arg := q.Scope.Flag()
	if q.Action == "stop" {
		return done{Done: true, Undo: "ehdbctl diff create " + arg}, e.StopFull(q.Scope)
	}
	switch {
	case q.Since > 0:
		err = e.Sample(q.Scope, a.Now().Add(-q.Since), 0)
	case q.Sample > 0:
		err = e.Sample(q.Scope, time.Time{}, q.Sample)
	default:
		err = e.Full(q.Scope)
	}
	return done{Done: true, Undo: "ehdbctl diff stop " + arg, Next: "ehdbctl diff show " + arg}, err
}

// sensible is why a request cannot be meant so.
func (q *DiffRequest) sensible() error {
	const all = 100
	switch {
	case q.Action != "create" && q.Action != "stop":
		return bad("action: give create or stop")
	case q.Since < 0:
		return bad("since: %v is no time ago", q.Since)
	case q.Sample < 0 || q.Sample > all:
		return bad("sample: %g is no part of 100", q.Sample)
	case q.Since > 0 && q.Sample > 0:
		return bad("since and sample: give one of them")
	}
	return nil
}

func (a *api) findings(r *http.Request) (any, error) {
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	v := r.URL.Query()
	q := parity.Query{Healed: v.Get("healed") == "true"}
	if v.Get("scope") != "" {
		if q.Scope, err = scopeOf(r); err != nil {
			return nil, err
		}
	}
	for _, name := range v["state"] {
		var s parity.State
		if err := s.UnmarshalText([]byte(name)); err != nil {
			return nil, bad("state: %w", err)
		}
		q.States = append(q.States, s)
	}
	for name, to := range map[string]*uint64{"first": &q.First, "last": &q.Last} {
		if *to, err = number(r, name); err != nil {
			return nil, err
		}
	}
	limit, err := number(r, "limit")
	if err != nil {
		return nil, err
	}
	q.Limit = int(min(limit, maxEvents)) //nolint:gosec // bounded
	out := FindingList{Redacted: !knows(r, a.Token)}
	out.Findings, out.Dropped = e.Findings(q)
	if out.Redacted {
		for i := range out.Findings {
			redact(&out.Findings[i])
		}
	}
	return out, nil
}

// redact leaves out what messages say.
func redact(f *parity.Finding) {
	for _, side := range []**parity.Shown{&f.Authority, &f.Copy} {
		if *side != nil {
			s := **side
			s.Data, s.Header = nil, ""
			*side = &s
		}
	}
}

// Explained is one sequence as all witnesses tell of it.
type Explained struct {
	*parity.Finding
	Redacted bool `json:"redacted"`
}

func (a *api) explain(r *http.Request) (any, error) {
	scope, err := scopeOf(r)
	if err != nil {
		return nil, err
	}
	seq, err := number(r, "seq")
	if err != nil {
		return nil, err
	}
	if seq == 0 {
		return nil, bad("seq is missing")
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	f, err := e.Explain(r.Context(), scope, seq)
	if err != nil {
		return nil, err
	}
	out := Explained{Finding: f, Redacted: !knows(r, a.Token)}
	if out.Redacted {
		redact(out.Finding)
	}
	return out, nil
}

// maxRepair bounds one repair: what needs more is better filled anew.
const maxRepair = 10_000

func (a *api) repair(r *http.Request) (any, error) {
	var q struct {
		Actor
		Scope cutover.Scope `json:"scope"`
		Seqs  []uint64      `json:"seqs"`
	}
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	if len(q.Seqs) == 0 || len(q.Seqs) > maxRepair {
		return nil, bad("seqs: give 1 to %d sequences", maxRepair)
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	return e.Repair(r.Context(), q.Scope, q.Seqs)
}

func (a *api) known(*http.Request) (any, error) {
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	return struct {
		Known []parity.Known `json:"known"`
	}{e.Known()}, nil
}

func (a *api) knownAdd(r *http.Request) (any, error) {
	var k parity.Known
	if err := body(r, &k); err != nil {
		return nil, err
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	if err := e.AddKnown(k); err != nil {
		if errors.Is(err, parity.ErrUnknown) {
			return nil, err
		}
		return nil, badRequestError{err}
	}
	return done{Done: true, Undo: "ehdbctl diff known rm " + k.Name + " " + k.Scope.Flag()}, nil
}

func (a *api) knownRemove(r *http.Request) (any, error) {
	scope, err := scopeOf(r)
	if err != nil {
		return nil, err
	}
	e, err := a.parity()
	if err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("name")
	ok, err := e.RemoveKnown(scope, name)
	if err == nil && !ok {
		err = fmt.Errorf("known divergence %q of %s: %w", name, scope, ErrUnknown)
	}
	return done{Done: true}, err
}

// selfTest runs the controls. Its JSON is that of the source system: controls_ok, and controls with control, expected
// and detail. The status is 503 if one of them is not as expected, so that probes see it.
func (a *api) selfTest(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, http.StatusMethodNotAllowed, problem{"only GET is served here", "bad_request"})
		return
	}
	e, err := a.parity()
	if err != nil {
		a.fail(w, r, err)
		return
	}
	t := e.Inspect(r.Context())
	status := http.StatusOK
	if !t.OK {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, t)
}

// waiting is a context that ends before a proxy loses its patience.
func waiting(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), maxWait)
}

func (a *api) events(r *http.Request) (any, error) {
	after, err := number(r, "after")
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit")
	if err != nil {
		return nil, err
	}
	if limit == 0 || limit > maxEvents {
		limit = maxEvents
	}
	ctx, cancel := waiting(r)
	defer cancel()
	list, err := a.Engine.Events(ctx, after, int(limit), r.URL.Query().Get("wait") == "true") //nolint:gosec // bounded
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []Event{}
	}
	return EventList{list}, nil
}

// EventList is a list of events.
type EventList struct {
	Events []Event `json:"events"`
}
