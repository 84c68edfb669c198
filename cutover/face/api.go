package face

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Base is where the API begins.
const Base = "/cutover/v1"

// Options of an API.
type Options struct {
	Engine Engine
	Token  string // of the operator; empty: nothing can be changed
	// Approver is the token of those who approve; empty: approvals are names.
	Approver string
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// api serves the pages.
type api struct{ Options }

// handler answers a request with a value for JSON, or an error.
type handler func(r *http.Request) (any, error)

// maxBody bounds a request's body.
const maxBody = 1 << 20

// Routes returns the pages by path, for the monitor. Each takes only the methods that it has.
func Routes(o Options) map[string]http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{o}
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	out := map[string]http.Handler{}
	for path, methods := range map[string]map[string]handler{
		"/status":        {get: a.status},
		"/inventory":     {get: a.inventory},
		"/plan":          {get: a.plan},
		"/gates":         {get: a.gates},
		"/events":        {get: a.events},
		"/diff":          {get: a.diff, post: a.diffRun},
		"/diff/findings": {get: a.findings},
		"/diff/explain":  {get: a.explain},
		"/diff/repair":   {post: a.repair},
		"/diff/known":    {get: a.known, post: a.knownAdd, del: a.knownRemove},
		"/flip":          {post: a.flip},
		"/flip/go":       {post: a.flipGo},
		"/flip/abort":    {post: a.flipAbort},
		"/flip/accept":   {post: a.flipAccept},
		"/rollback":      {post: a.rollback},
		"/complete":      {post: a.complete},
		"/shadow":        {post: a.shadow},
		"/canary":        {post: a.canary},
		"/throttle":      {post: a.throttle},
		"/pause":         {post: a.pause},
		"/resume":        {post: a.resume},
		"/drill":         {get: a.drills, post: a.drill},
		"/drill/fault":   {post: a.drillFault},
		"/drill/report":  {post: a.drillReport},
	} {
		out[Base+path] = a.serve(methods)
	}
	out[Base+"/approve"] = http.HandlerFunc(a.approve)
	out[Base+"/evidence"] = http.HandlerFunc(a.evidence)
	for _, path := range []string{Base + "/parity/self-test", "/parity/self-test", "/api/ehdb/parity/self-test"} {
		out[path] = http.HandlerFunc(a.selfTest)
	}
	return out
}

// problem is how errors are answered.
type problem struct {
	Error string `json:"error"`
	Kind  string `json:"kind"` // unauthorized, refused, not_found, not_supported, bad_request, failed
}

// badRequest is an error of whoever asks.
type badRequestError struct{ error }

func bad(format string, args ...any) error { return badRequestError{fmt.Errorf(format, args...)} }

func (a *api) serve(methods map[string]handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h := methods[method]
		if h == nil {
			var allow []string
			for m := range methods {
				allow = append(allow, m)
			}
			slices.Sort(allow)
			w.Header().Set("Allow", strings.Join(allow, ", "))
			writeJSON(w, http.StatusMethodNotAllowed, problem{r.Method + " is not served here", "bad_request"})
			return
		}
		if method != http.MethodGet && !a.trusted(w, r) {
			return
		}
		v, err := h(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// trusted answers requests without the operator's token.
func (a *api) trusted(w http.ResponseWriter, r *http.Request) bool {
	if knows(r, a.Token) {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="cutover"`)
	text := "changes need the operator's token, which is in <store_dir>/ehdb-cutover/" + TokenFile +
		", as Authorization: Bearer"
	if a.Token == "" {
		text = "this gateway has no operator's token, so nothing can be changed here"
	}
	writeJSON(w, http.StatusUnauthorized, problem{text, "unauthorized"})
	return false
}

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, kind := http.StatusInternalServerError, "failed"
	switch {
	case errors.As(err, new(badRequestError)):
		status, kind = http.StatusBadRequest, "bad_request"
	case errors.Is(err, ErrUnknown), errors.Is(err, parity.ErrUnknown), errors.Is(err, cutover.ErrNoStream),
		errors.Is(err, cutover.ErrNoRecord):
		status, kind = http.StatusNotFound, "not_found"
	case errors.Is(err, ErrNotEnough):
		status, kind = http.StatusConflict, "not_enough"
	case errors.Is(err, ErrRefused), errors.Is(err, cutover.ErrRole):
		status, kind = http.StatusConflict, "refused"
	case errors.Is(err, ErrUnsupported):
		status, kind = http.StatusNotImplemented, "not_supported"
	default:
		a.Logger.Warn("A request of the cutover's API failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	writeJSON(w, status, problem{err.Error(), kind})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who asked has gone
}

// body reads a request's JSON into v. Fields that are not known are an error: a typo must not become a default.
func body(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return bad("the body is not as it should be: %w", err)
	}
	return nil
}

func scopeOf(r *http.Request) (cutover.Scope, error) {
	s, err := cutover.ParseScope(r.URL.Query().Get("scope"))
	if err != nil {
		return s, bad("scope: %w", err)
	}
	return s, nil
}

// number reads a whole number from the query.
func number(r *http.Request, name string) (uint64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, bad("%s: %w", name, err)
	}
	return n, nil
}

// acted wants to know who asks for a change.
func acted(a Actor, scope cutover.Scope) error {
	if scope.Stream == "" {
		return bad("scope is missing")
	}
	if a.By == "" {
		return bad(`"by" is missing: changes are kept with who asked for them`)
	}
	return nil
}

func (a *api) status(r *http.Request) (any, error) { return Overview(r.Context(), a.Engine) }

// Overview is an engine's status with the gates of every stream, for what is due in its phase.
func Overview(ctx context.Context, e Engine) (*Status, error) {
	st, err := e.Status(ctx)
	if err != nil {
		return nil, err
	}
	for i := range st.Streams {
		s := &st.Streams[i]
		g, err := e.Gates(ctx, s.Scope, purposeOf(s.Phase))
		if err != nil {
			s.LastErr = strings.TrimPrefix(s.LastErr+"; gates: "+err.Error(), "; ")
			continue
		}
		s.Gates = &g
	}
	return st, nil
}

// purposeOf is what the gates are for in a phase.
func purposeOf(p Phase) gate.Purpose {
	if p == PhaseEHDB || p == PhaseComplete {
		return gate.Complete
	}
	return gate.Flip
}

func (a *api) inventory(r *http.Request) (any, error) { return a.Engine.Inventory(r.Context()) }

func (a *api) plan(r *http.Request) (any, error) {
	scope, err := scopeOf(r)
	if err != nil {
		return nil, err
	}
	to := r.URL.Query().Get("to")
	if to != "ehdb" && to != "nats" {
		return nil, bad("to: give ehdb or nats")
	}
	q := PlanRequest{Scope: scope, To: to, NoReverse: r.URL.Query().Get("no_reverse_shadow") == "true"}
	if q.Emergency = r.URL.Query().Get("emergency") == "true"; q.Emergency && to != "nats" {
		return nil, bad("emergency: it is for to=nats")
	}
	if text := r.URL.Query().Get("observe"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > MaxObserve {
			return nil, bad("observe: %q is no duration between 0 and %v", text, MaxObserve)
		}
		q.Observe = &d
	}
	return a.Engine.Plan(r.Context(), q)
}

func (a *api) gates(r *http.Request) (any, error) {
	scope, err := scopeOf(r)
	if err != nil {
		return nil, err
	}
	purpose := gate.Purpose(r.URL.Query().Get("for"))
	switch purpose {
	case "":
		purpose = gate.Flip
	case gate.Flip, gate.Complete:
	default:
		return nil, bad("for: give %s or %s", gate.Flip, gate.Complete)
	}
	return a.Engine.Gates(r.Context(), scope, purpose)
}

const (
	maxEvents = 1000
	maxWait   = 25 * time.Second // below what proxies wait
)

func (a *api) rollback(r *http.Request) (any, error) {
	var q RollbackRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	return a.Engine.Rollback(r.Context(), q)
}

// done is the answer to what has no other.
type done struct {
	Done bool   `json:"done"`
	Undo string `json:"undo,omitempty"`
	Next string `json:"next,omitempty"`
}

func (a *api) complete(r *http.Request) (any, error) {
	var q CompleteRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	if !q.Understood {
		return nil, bad("this cannot be undone: say that it is understood")
	}
	if err := forceable(q.Force); err != nil {
		return nil, err
	}
	return done{Done: true}, a.Engine.Complete(r.Context(), q)
}

// approve takes the word of whoever has the approvers' token, which is not the operator's.
func (a *api) approve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		writeJSON(w, http.StatusMethodNotAllowed, problem{r.Method + " is not served here", "bad_request"})
		return
	case a.Approver == "":
		a.fail(w, r, fmt.Errorf("%w: this gateway has no approvers' token: with 32 characters or more in "+
			"<store_dir>/ehdb-cutover/%s at its start approvals are made by whoever has it, not by name",
			ErrUnsupported, ApproverFile))
		return
	case !knows(r, a.Approver):
		w.Header().Set("WWW-Authenticate", `Bearer realm="approval"`)
		writeJSON(w, http.StatusUnauthorized, problem{"an approval needs the approvers' token, which is in " +
			"<store_dir>/ehdb-cutover/" + ApproverFile + ", as Authorization: Bearer", "unauthorized"})
		return
	}
	q, err := scoped(r)
	if err == nil {
		err = a.Engine.Approve(r.Context(), q.Scope, q.Actor)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	next := "ehdbctl complete " + q.Scope.Flag() + " --retire ... --i-understand"
	writeJSON(w, http.StatusOK, done{Done: true, Next: next})
}

func (a *api) shadow(r *http.Request) (any, error) {
	var q ShadowRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	if q.Rate < 0 {
		return nil, bad("rate: %d is no number of bytes a second", q.Rate)
	}
	if err := q.settle(); err != nil {
		return nil, err
	}
	out := done{Done: true}
	switch arg := q.Scope.Flag(); q.Action {
	case "backfill":
		out.Undo, out.Next = "ehdbctl shadow backfill "+arg, "ehdbctl status --watch "+arg
	case "start":
		out.Undo, out.Next = "ehdbctl shadow stop "+arg, "ehdbctl status "+arg
	case "stop":
		out.Undo = "ehdbctl shadow start " + arg
	case "reset":
		out.Next = "ehdbctl diff create " + arg
	default:
		return nil, bad("action: give start, stop, reset or backfill")
	}
	return out, a.Engine.Shadow(r.Context(), q)
}

func (a *api) canary(r *http.Request) (any, error) {
	var q CanaryRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	undo, arg := "rm", " "+q.Scope.Flag()
	if q.Remove {
		undo = "add"
	}
	if q.Consumer != "" {
		arg = " --scope 'consumer=" + q.Scope.String() + "/" + q.Consumer + "'"
	}
	list, err := a.Engine.Canary(r.Context(), q)
	return struct {
		done
		Consumers []CanaryResult `json:"consumers"`
	}{done{Done: true, Undo: "ehdbctl canary " + undo + arg}, list}, err
}
