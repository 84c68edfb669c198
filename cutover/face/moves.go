package face

import (
	"cmp"
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

func (a *api) flip(r *http.Request) (any, error) {
	var q FlipRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	if err := q.sensible(); err != nil {
		return nil, err
	}
	return a.Engine.Flip(r.Context(), q)
}

// MaxHold bounds FlipRequest.HoldWindow.
const MaxHold = 24 * time.Hour

// MaxObserve bounds FlipRequest.Observe.
const MaxObserve = 24 * time.Hour

// sensible is why a request cannot be meant so.
func (q *FlipRequest) sensible() error {
	switch {
	case q.PostponeFile != "" && !filepath.IsAbs(q.PostponeFile):
		return bad("postpone_file: give the whole path of a file on the gateway's machine, not %q", q.PostponeFile)
	case q.HoldWindow < 0 || q.HoldWindow > MaxHold:
		return bad("hold_window: %v is not between 0 and %v", q.HoldWindow, MaxHold)
	case q.Observe != nil && (*q.Observe < 0 || *q.Observe > MaxObserve):
		return bad("observe: %v is not between 0 and %v", *q.Observe, MaxObserve)
	case q.NoReverse && !q.Understood:
		return bad("no_reverse_shadow: the servers will not be kept equal, so a rollback will lose what is published " +
			"here: say that it is understood")
	case q.NoReverse && q.Test:
		return bad("no_reverse_shadow and test: there would be no way back")
	}
	return forceable(q.Force)
}

// forceable is why some gates cannot be done without.
func forceable(forced map[string]string) error {
	if why := gate.Unforceable(forced); why != "" {
		return bad("force: %s", why)
	}
	return nil
}

func (a *api) flipAccept(r *http.Request) (any, error) {
	q, err := scoped(r)
	if err != nil {
		return nil, err
	}
	out := done{Done: true, Undo: "ehdbctl rollback " + q.Scope.Flag()}
	return out, a.Engine.Accept(r.Context(), q.Scope, q.Actor)
}

func (a *api) flipGo(r *http.Request) (any, error)    { return a.release(r, false) }
func (a *api) flipAbort(r *http.Request) (any, error) { return a.release(r, true) }

func (a *api) release(r *http.Request, abort bool) (any, error) {
	q, err := scoped(r)
	if err != nil {
		return nil, err
	}
	return a.Engine.Release(r.Context(), q.Scope, abort, q.By)
}

// ScopedRequest says no more than which stream something is to be done to, and who asks.
type ScopedRequest struct {
	Actor
	Scope cutover.Scope `json:"scope"`
}

func scoped(r *http.Request) (q ScopedRequest, err error) {
	if err = body(r, &q); err == nil {
		err = acted(q.Actor, q.Scope)
	}
	return q, err
}

func (a *api) throttle(r *http.Request) (any, error) {
	var q ThrottleRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if q.By == "" {
		return nil, bad(`"by" is missing: changes are kept with who asked for them`)
	}
	if err := q.settle(); err != nil {
		return nil, err
	}
	if q.Off && q.Given() {
		return nil, bad("off and loads: give one of them (a load that is off is lifted)")
	}
	out, arg := done{Done: true}, flagOf(q.Scope)
	switch {
	case q.Given():
		had, err := a.loadsOf(r.Context(), q.Scope)
		if err != nil {
			return nil, err
		}
		out.Undo = "ehdbctl throttle" + undoLoads(&q.Limits, had) + arg
	case q.Reason != "" && !q.Off:
		out.Undo = "ehdbctl throttle off" + arg
	default:
		out.Undo = "ehdbctl throttle REASON" + arg
	}
	return out, a.Engine.Throttle(r.Context(), q)
}

// loadsOf are the limits of a stream, or of all, as they are now.
func (a *api) loadsOf(ctx context.Context, scope cutover.Scope) (*LoadState, error) {
	st, err := a.Engine.Status(ctx)
	if err != nil {
		return nil, err
	}
	had := st.Load
	if scope.Stream != "" {
		had = nil
	}
	for i := range st.Streams {
		if st.Streams[i].Scope == scope {
			had = st.Streams[i].Copy.Load
		}
	}
	if had == nil {
		had = &LoadState{}
	}
	return had, nil
}

// undoLoads are the flags that set again what limits are about to change.
func undoLoads(l *Limits, had *LoadState) (flags string) {
	if l.Max != nil {
		flags += " --max-load " + cmp.Or(had.Max, LoadOff)
	}
	if l.Critical != nil {
		flags += " --critical-load " + cmp.Or(had.Critical, LoadOff)
	}
	return flags
}

func (a *api) pause(r *http.Request) (any, error) {
	var q PauseRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	switch {
	case q.By == "":
		return nil, bad(`"by" is missing: changes are kept with who asked for them`)
	case q.Reason == "":
		return nil, bad(`"reason" is missing: the status has to name one`)
	}
	return done{Done: true, Undo: "ehdbctl resume" + flagOf(q.Scope)}, a.Engine.Pause(r.Context(), q)
}

func (a *api) resume(r *http.Request) (any, error) {
	var q PauseRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if q.By == "" {
		return nil, bad(`"by" is missing: changes are kept with who asked for them`)
	}
	q.End = true
	return done{Done: true, Undo: "ehdbctl pause" + flagOf(q.Scope) + " --reason ..."}, a.Engine.Pause(r.Context(), q)
}

// flagOf is a stream as a flag of ehdbctl; empty: all streams.
func flagOf(s cutover.Scope) string {
	if s.Stream == "" {
		return ""
	}
	return " " + s.Flag()
}
