package face

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Every page is described.
func TestPagesAreDescribed(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cutover-api.md")
	if err != nil {
		t.Fatal(err)
	}
	for page := range Routes(Options{}) {
		if !strings.Contains(string(doc), "`"+page+"`") {
			t.Errorf("docs/cutover-api.md does not know %s", page)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var scope = cutover.Scope{Account: "A/B", Stream: "ORDERS"}

// side is a stream in memory.
type side []cutover.Record

func (s side) State(context.Context, bool) (server.StreamState, error) {
	return server.StreamState{Msgs: uint64(len(s)), FirstSeq: 1, LastSeq: s[len(s)-1].Seq}, nil
}

func (s side) Read(_ context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	for i := range s {
		if s[i].Seq >= from && !fn(&s[i], nil) {
			break
		}
	}
	return nil
}

func (s side) Get(_ context.Context, seq uint64) (*cutover.Record, error) {
	for i := range s {
		if s[i].Seq == seq {
			return &s[i], nil
		}
	}
	return nil, cutover.ErrNoRecord
}

// stage is an engine of one stream, whose copy has one other payload. It keeps what it is asked for.
type stage struct {
	Engine // what is not here is not called
	parity *parity.Engine
	asked  []any
	err    error
}

func newStage(t *testing.T) *stage {
	t.Helper()
	e, err := parity.New(parity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	nats := side{
		{Seq: 1, Time: 1, Subject: []byte("a"), Data: []byte("one")},
		{Seq: 2, Time: 2, Subject: []byte("a"), Data: []byte("two")},
	}
	ehdb := slices.Clone(nats)
	ehdb[1].Data = []byte("tWo")
	if err := e.Attach(parity.Stream{Scope: scope, NATS: nats, EHDB: ehdb, Config: &server.StreamConfig{}}); err != nil {
		t.Fatal(err)
	}
	e.Tick(t.Context())
	return &stage{parity: e}
}

func (s *stage) Parity() *parity.Engine { return s.parity }

func (s *stage) Status(context.Context) (*Status, error) {
	return &Status{Streams: []StreamState{{Scope: scope, Phase: PhaseShadow}}}, s.err
}

func (s *stage) Inventory(context.Context) (*Inventory, error) {
	return nil, errors.New("the servers are away")
}

func (s *stage) Gates(_ context.Context, sc cutover.Scope, p gate.Purpose) (gate.Report, error) {
	if sc != scope {
		return gate.Report{}, fmt.Errorf("%s: %w", sc, ErrUnknown)
	}
	return gate.Evaluate(gate.Facts{}, sc, gate.Options{Now: time.Now(), Purpose: p}), nil
}

func (s *stage) Events(_ context.Context, after uint64, limit int, wait bool) ([]Event, error) {
	s.asked = append(s.asked, after, limit, wait)
	return nil, nil
}

func (s *stage) Plan(_ context.Context, r PlanRequest) (*Plan, error) {
	sc, to := r.Scope, r.To
	return &Plan{Scope: sc, To: to}, nil
}

func (s *stage) Flip(_ context.Context, r FlipRequest) (*Move, error) {
	s.asked = append(s.asked, r)
	return &Move{Scope: r.Scope, State: "done"}, s.err
}

func (s *stage) Complete(_ context.Context, r CompleteRequest) error {
	s.asked = append(s.asked, r)
	return s.err
}

func (s *stage) DrillFault(_ context.Context, r DrillFaultRequest) (*Drill, error) {
	return &Drill{ID: r.ID, Step: drill.Broken}, nil
}

func (s *stage) DrillReport(_ context.Context, r DrillReportRequest) (*Drill, error) {
	return &Drill{ID: r.ID, Step: drill.Settling}, nil
}

func (s *stage) Drills() []Drill { return []Drill{{ID: 4, Kind: "partition"}} }

func (s *stage) Drill(_ context.Context, r DrillRequest) (*Drill, error) {
	return &Drill{Kind: r.Kind}, nil
}

func (s *stage) Pause(_ context.Context, r PauseRequest) error {
	s.asked = append(s.asked, r)
	return s.err
}

func (s *stage) Throttle(context.Context, ThrottleRequest) error               { return nil }
func (s *stage) Shadow(context.Context, ShadowRequest) error                   { return nil }
func (s *stage) Canary(context.Context, CanaryRequest) ([]CanaryResult, error) { return nil, nil }

const token = "0123456789012345678901234567890123456789"

func serveStage(s Engine) http.Handler {
	mux := http.NewServeMux()
	for p, h := range Routes(Options{Engine: s, Token: token}) {
		mux.Handle(p, h)
	}
	return mux
}

func ask(h http.Handler, method, path, body, with string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if with != "" {
		r.Header.Set("Authorization", "Bearer "+with)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReading(t *testing.T) {
	h := serveStage(newStage(t))
	for path, want := range map[string]string{
		"/status":                              `"verdict": "NOT ENOUGH EVIDENCE"`,
		"/gates?scope=A/B/ORDERS&for=complete": `"G24"`,
		"/plan?scope=A/B/ORDERS&to=ehdb":       `"to": "ehdb"`,
		"/diff?scope=A/B/ORDERS":               `"mismatch": 1`,
		"/diff/findings?scope=A/B/ORDERS":      `"field": "data"`,
		"/diff/findings?state=missing":         `"findings": []`,
		"/diff/explain?scope=A/B/ORDERS&seq=2": `"offset": 1`,
		"/diff/known":                          `"known": null`,
		"/events?after=3&wait=true":            `"events": []`,
		"/parity/self-test":                    `"controls_ok": true`,
	} {
		if code, got := ask(h, "GET", Base+path, "", ""); code != 200 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	for path, want := range map[string]int{
		"/gates":                               400,
		"/gates?scope=NOPE":                    404,
		"/gates?scope=ORDERS&for=fun":          400,
		"/plan?scope=A/B/ORDERS":               400,
		"/diff?scope=NOPE":                     404,
		"/diff/explain?scope=A/B/ORDERS":       400,
		"/diff/explain?scope=A/B/ORDERS&seq=9": 404,
		"/diff/findings?state=odd":             400,
		"/inventory":                           500,
		"/flip":                                405,
	} {
		code, got := ask(h, "GET", Base+path, "", "")
		var p problem
		if err := json.Unmarshal([]byte(got), &p); code != want || err != nil || p.Error == "" {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
}

// The shape is that of the source system: jq '.controls[] | select(.expected == false)' has to find what failed.
func TestSelfTestShape(t *testing.T) {
	h := serveStage(newStage(t))
	for _, path := range []string{"/parity/self-test", "/api/ehdb/parity/self-test"} {
		code, got := ask(h, "GET", path, "", "")
		var v struct {
			OK       *bool `json:"controls_ok"`
			Controls []struct {
				Control  string `json:"control"`
				Expected *bool  `json:"expected"`
				Detail   string `json:"detail"`
			} `json:"controls"`
		}
		if err := json.Unmarshal([]byte(got), &v); err != nil || code != 200 || v.OK == nil || !*v.OK ||
			len(v.Controls) < 10 {
			t.Fatalf("%d %s %v", code, got, err)
		}
		var names []string
		for _, c := range v.Controls {
			if c.Expected == nil || !*c.Expected || c.Detail == "" {
				t.Fatalf("%+v", c)
			}
			names = append(names, c.Control)
		}
		for _, want := range []string{"identical", "lag_within_window", "lag_beyond_window"} {
			if !slices.Contains(names, want) {
				t.Fatalf("no control %s", want)
			}
		}
	}
}

func TestPayloadsNeedTheToken(t *testing.T) {
	h := serveStage(newStage(t))
	for _, path := range []string{"/diff/findings", "/diff/explain?scope=A/B/ORDERS&seq=2"} {
		_, without := ask(h, "GET", Base+path, "", "")
		_, wrong := ask(h, "GET", Base+path, "", token+"0")
		_, with := ask(h, "GET", Base+path, "", token)
		if strings.Contains(without, "dFdv") || strings.Contains(wrong, "dFdv") ||
			!strings.Contains(with, "dFdv") { // tWo
			t.Fatalf("%s: %s\n%s", path, without, with)
		}
		if _, again := ask(h, "GET", Base+path, "", token); !strings.Contains(again, "dFdv") {
			t.Fatal("what one answer left out is gone from the store")
		}
	}
	if code, _ := ask(h, "GET", Base+"/evidence", "", ""); code != 401 {
		t.Fatal(code)
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	s := newStage(t)
	h := serveStage(s)
	body := `{"scope":"A/B/ORDERS","by":"me","reason":"try","max_fence":1000000,"force":{"G11":"case"}}`
	for _, with := range []string{"", "wrong", token[1:]} {
		if code, got := ask(h, "POST", Base+"/flip", body, with); code != 401 || !strings.Contains(got, TokenFile) {
			t.Fatal(code, got)
		}
	}
	if len(s.asked) > 0 {
		t.Fatal("it was done")
	}
	if code, got := ask(h, "POST", Base+"/flip", body, token); code != 200 || len(s.asked) != 1 {
		t.Fatal(code, got)
	}
	if q, ok := s.asked[0].(FlipRequest); !ok || q.Scope != scope || q.By != "me" || q.Force["G11"] != "case" ||
		q.MaxFence != time.Millisecond {
		t.Fatalf("%+v", s.asked)
	}
	for name, tc := range map[string]struct {
		path, body string
		code       int
	}{
		"nobody":         {"/flip", `{"scope":"A/B/ORDERS"}`, 400},
		"no scope":       {"/flip", `{"by":"me"}`, 400},
		"a typo":         {"/flip", `{"scope":"A/B/ORDERS","by":"me","maxfence":3}`, 400},
		"not understood": {"/complete", `{"scope":"A/B/ORDERS","by":"me"}`, 400},
		"complete":       {"/complete", `{"scope":"A/B/ORDERS","by":"me","understood":true}`, 200},
		"a drill":        {"/drill", `{"scope":"A/B/ORDERS","by":"me","kind":"partition"}`, 200},
		"a wild drill":   {"/drill", `{"scope":"A/B/ORDERS","by":"me","kind":"partition","load":100000}`, 400},
		"a fault":        {"/drill/fault", `{"by":"me","id":4,"seconds":5}`, 200},
		"a long fault":   {"/drill/fault", `{"by":"me","id":4,"seconds":60}`, 400},
		"whose fault":    {"/drill/fault", `{"id":4}`, 400},
		"a report":       {"/drill/report", `{"by":"me","id":4,"account":{"published":7}}`, 200},
		"what report":    {"/drill/report", `{"by":"me","account":{"published":7}}`, 400},
		"no such drill":  {"/drill", `{"scope":"A/B/ORDERS","by":"me","kind":"fire"}`, 400},
		"shadow":         {"/shadow", `{"scope":"A/B/ORDERS","by":"me","action":"start"}`, 200},
		"no such action": {"/shadow", `{"scope":"A/B/ORDERS","by":"me","action":"go"}`, 400},
		"canary":         {"/canary", `{"scope":"A/B/ORDERS","by":"me","consumer":"c"}`, 200},
		"all consumers":  {"/canary", `{"scope":"A/B/ORDERS","by":"me"}`, 200},
		"file not whole": {"/flip", `{"scope":"A/B/ORDERS","by":"me","postpone_file":"x"}`, 400},
		"file":           {"/flip", `{"scope":"A/B/ORDERS","by":"me","postpone_file":"/run/x","hold_window":1000000000}`, 200},
		"too long":       {"/flip", `{"scope":"A/B/ORDERS","by":"me","hold_window":90000000000000}`, 400},
		"no way back":    {"/flip", `{"scope":"A/B/ORDERS","by":"me","no_reverse_shadow":true}`, 400},
		"understood":     {"/flip", `{"scope":"A/B/ORDERS","by":"me","no_reverse_shadow":true,"understood":true}`, 200},
		"there and none": {"/flip", `{"scope":"A/B/ORDERS","by":"me","no_reverse_shadow":true,"understood":true,"test":true}`, 400},
		"not forceable":  {"/flip", `{"scope":"A/B/ORDERS","by":"me","force":{"G11":"t","G3":"t"}}`, 400},
		"no such gate":   {"/complete", `{"scope":"A/B/ORDERS","by":"me","understood":true,"force":{"G99":"t"}}`, 400},
		"force, no why":  {"/flip", `{"scope":"A/B/ORDERS","by":"me","force":{"G11":" "}}`, 400},
		"pause":          {"/pause", `{"by":"me","reason":"night"}`, 200},
		"pause, why":     {"/pause", `{"by":"me","scope":"A/B/ORDERS"}`, 400},
		"pause, who":     {"/pause", `{"reason":"night"}`, 400},
		"resume":         {"/resume", `{"by":"me","scope":"A/B/ORDERS"}`, 200},
		"throttle":       {"/throttle", `{"by":"me","reason":"night"}`, 200},
		"diff":           {"/diff", `{"scope":"A/B/ORDERS","action":"create"}`, 200},
		"no repair":      {"/diff/repair", `{"scope":"A/B/ORDERS","by":"me"}`, 400},
		"known for ever": {"/diff/known", `{"name":"n","scope":"A/B/ORDERS","first":1,"last":1,"reason":"r"}`, 400},
	} {
		if code, got := ask(h, "POST", Base+tc.path, tc.body, token); code != tc.code {
			t.Errorf("%s: %d %s", name, code, got)
		}
	}
	for err, want := range map[error]int{
		fmt.Errorf("G3: %w", ErrRefused): 409, fmt.Errorf("x: %w", ErrUnknown): 404, ErrUnsupported: 501, io.ErrUnexpectedEOF: 500,
	} {
		s.err = err
		if code, got := ask(h, "POST", Base+"/flip", body, token); code != want || !strings.Contains(got, err.Error()) {
			t.Errorf("%v: %d %s", err, code, got)
		}
	}
}

func TestWithoutATokenNothingChanges(t *testing.T) {
	mux := http.NewServeMux()
	for p, h := range Routes(Options{Engine: newStage(t)}) {
		mux.Handle(p, h)
	}
	if code, got := ask(mux, "POST", Base+"/flip", `{}`, "x"); code != 401 ||
		!strings.Contains(got, "no operator's token") {
		t.Fatal(code, got)
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	one, err := Token(dir)
	if err != nil || len(one) < 40 {
		t.Fatal(one, err)
	}
	if two, err := Token(dir); err != nil || two != one {
		t.Fatal(two, err)
	}
	name := filepath.Join(dir, TokenFile)
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(dir); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(name, 0o600), os.WriteFile(name, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(dir); err == nil {
		t.Fatal("a token of one letter")
	}
}

func TestEvidence(t *testing.T) {
	code, got := ask(serveStage(newStage(t)), "GET", Base+"/evidence", "", token)
	if code != 200 {
		t.Fatal(code, got)
	}
	gz, err := gzip.NewReader(bytes.NewReader([]byte(got)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		files[h.Name] = string(b)
	}
	for name, want := range map[string]string{
		"status.json": `"G1"`, "inventory.json": "the servers are away", "events.json": "events", "self-test.json": "controls_ok",
		"findings.json": "dFdv", "known.json": "", "diff/A/B/ORDERS.json": `"done"`,
	} {
		if got, ok := files[name]; !ok || !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newStage(t)
	reg.MustRegister(Metrics(s.parity))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += "," + l.GetName() + "=" + l.GetValue()
			}
			got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"ehdb_crossstore_controls_ok": 1,
		"ehdb_crossstore_control_total,control=lag_beyond_window,result=expected":                1,
		"ehdb_crossstore_control_total,control=lag_beyond_window,result=unexpected":              0,
		"ehdb_crossstore_parity_total,account=A/B,outcome=divergent,stream=ORDERS":               1,
		"ehdb_crossstore_parity_total,account=A/B,outcome=error,stream=ORDERS":                   0,
		"ehdb_crossstore_divergence_total,account=A/B,kind=content,state=mismatch,stream=ORDERS": 1,
		"ehdb_crossstore_divergence_total,account=A/B,kind=order,state=reordered,stream=ORDERS":  0,
		"ehdb_crossstore_events_compared_total,account=A/B,stream=ORDERS":                        2,
		"ehdb_crossstore_accounted_for,account=A/B,stream=ORDERS":                                1,
		"ehdb_crossstore_digest_equal,account=A/B,stream=ORDERS":                                 0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v, %v", key, v, ok)
		}
	}
}
