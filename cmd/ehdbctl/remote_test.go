package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

var orders = cutover.Scope{Account: "$G", Stream: "ORDERS"}

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

// stage is a gateway's engine of one stream whose copy has one other byte. It remembers what it was asked for.
type stage struct {
	face.Engine // what is not here is not called
	parity      *parity.Engine
	facts       gate.Facts
	phase       face.Phase
	asked       []any
	others      []cutover.Scope // more streams, of which nothing else is known
}

func (s *stage) Parity() *parity.Engine { return s.parity }

func (s *stage) Status(context.Context) (*face.Status, error) {
	p, err := s.parity.Status(orders)
	st := face.StreamState{
		Scope: orders, Phase: s.phase, Authority: "nats", Parity: &p, Legal: []string{"flip"},
		Latency: []face.Latency{
			{Kind: "publish_ack", Side: "nats", P50: .0019, P99: .0074, N: 41220, Utilisation: .22},
			{Kind: "gateway", Side: "overhead", P50: .00021, P99: .0004, N: 40},
		},
		Copy: face.CopyState{Load: &face.LoadState{Max: "rtt=7ms"}},
		Back: face.RollbackCard{Possible: s.phase == face.PhaseEHDB, Lost: 3, Duplicates: 1, Why: "n/a"},
	}
	if s.phase == face.PhaseEHDB {
		st.Authority = "ehdb"
	}
	streams := []face.StreamState{st}
	for _, other := range s.others {
		streams = append(streams, face.StreamState{Scope: other, Phase: s.phase, Authority: st.Authority})
	}
	drill := face.Drill{ID: 4, Kind: "partition", State: "passed", Result: "0 lost"}
	return &face.Status{
		At: time.Now(), Server: "gw", Load: &face.LoadState{Max: "lag=9s"}, Streams: streams, Controls: s.parity.SelfTest(), Drills: []face.Drill{drill},
		Bypass: []face.BypassState{{Account: "$G", At: time.Now(), Total: 3, Around: []face.Connection{
			{Addr: "10.3.1.9:1", Name: "cron", Lang: "go", Version: "1.36", Kind: "client", Server: "n1:8222"},
		}}},
	}, err
}

func (s *stage) Gates(_ context.Context, sc cutover.Scope, p gate.Purpose) (gate.Report, error) {
	return gate.Evaluate(s.facts, sc, gate.Options{Now: time.Now(), Purpose: p}), nil
}

func (s *stage) Inventory(context.Context) (*face.Inventory, error) {
	return &face.Inventory{
		Digest: "d1", Total: face.Amount{Streams: 1, Messages: 7, Bytes: 2048, Seconds: 1.5},
		Streams: []face.PlannedStream{{
			Scope: orders, Kind: "kv", Refusals: []string{"a mirror"}, Shards: []uint32{2, 0}, Groups: []string{"push/team"},
			Managed: []string{"managed-by=nack"},
		}},
		Queues: []face.QueueGroup{{Account: "$G", Subject: "work.>", Queue: "pool", Members: 3}},
	}, nil
}

func (s *stage) Events(_ context.Context, after uint64, _ int, _ bool) ([]face.Event, error) {
	if after > 0 {
		return nil, nil
	}
	return []face.Event{{ID: 1, Kind: "shadow", Scope: orders, Text: "the copy begins"}}, nil
}

func (s *stage) Plan(_ context.Context, r face.PlanRequest) (*face.Plan, error) {
	sc, to := r.Scope, r.To
	p := &face.Plan{Scope: sc, To: to, Digest: "7c1e", Steps: []string{"hold", "drain"}, Undo: "ehdbctl rollback"}
	if r.Emergency {
		p.Cost = &face.RollbackCard{Lost: 3, Duplicates: 1, Why: "n/a"}
	}
	if len(s.facts) == 0 {
		p.Refusals, p.NotEnough = []string{"G8"}, r.NoReverse
	}
	return p, nil
}

func (s *stage) Flip(_ context.Context, r face.FlipRequest) (*face.Move, error) {
	s.asked = append(s.asked, r)
	if r.Expect == "early" {
		return nil, fmt.Errorf("%w: UNKNOWN G2", face.ErrNotEnough)
	}
	if r.Expect == "stale" {
		return nil, fmt.Errorf("the plan has changed: %w", face.ErrRefused)
	}
	return &face.Move{Scope: r.Scope, State: "done", To: "ehdb", Epoch: 42, Fence: .117, Undo: "ehdbctl rollback --scope $G/ORDERS"}, nil
}

func (s *stage) Rollback(_ context.Context, r face.RollbackRequest) (*face.Move, error) {
	s.asked = append(s.asked, r)
	return &face.Move{Scope: r.Scope, State: "done", To: "nats"}, nil
}

func (s *stage) Pause(_ context.Context, r face.PauseRequest) error {
	s.asked = append(s.asked, r)
	return nil
}

func (s *stage) Throttle(_ context.Context, r face.ThrottleRequest) error {
	s.asked = append(s.asked, r)
	return nil
}

func (s *stage) Canary(_ context.Context, r face.CanaryRequest) ([]face.CanaryResult, error) {
	s.asked = append(s.asked, r)
	return []face.CanaryResult{{Consumer: "a", Served: true}, {Consumer: "b", Why: "it pushes"}}, nil
}

func (s *stage) Shadow(_ context.Context, r face.ShadowRequest) error {
	s.asked = append(s.asked, r)
	return nil
}

func (s *stage) DrillFault(context.Context, face.DrillFaultRequest) (*face.Drill, error) {
	return nil, face.ErrRefused
}

func (s *stage) DrillReport(_ context.Context, r face.DrillReportRequest) (*face.Drill, error) {
	return &face.Drill{ID: r.ID, Kind: "partition", State: "failed", Result: r.Account.Error}, nil
}

func (s *stage) Drills() []face.Drill {
	return []face.Drill{
		{ID: 3, Kind: "kill-gateway", State: "passed", Result: "lost 0", Lapsed: "it has expired"},
		{ID: 4, Kind: "flip-and-back", State: "passed", Result: "0 lost"},
		{ID: 5, Kind: "partition", State: "running", Step: "ready", Load: 10},
	}
}

func (s *stage) Drill(_ context.Context, r face.DrillRequest) (*face.Drill, error) {
	if r.Load != 500 {
		return nil, face.ErrRefused
	}
	id := map[string]uint64{"flip-and-back": 4, "partition": 5}[r.Kind]
	return &face.Drill{ID: id, Kind: r.Kind, State: "running", Step: "preparing"}, nil
}

// gateway serves a stage and returns a function that runs ehdbctl against it, with or without the operator's token.
func gateway(t *testing.T) (s *stage, ctl func(withToken bool, args ...string) (int, string, string)) {
	t.Helper()
	s, ctl, _ = gatewayAt(t)
	return s, ctl
}

// gatewayAt is gateway, and where it is.
func gatewayAt(t *testing.T) (s *stage, ctl func(withToken bool, args ...string) (int, string, string), at string) {
	t.Helper()
	e, err := parity.New(parity.Options{Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	nats := side{{Seq: 1, Time: 1, Subject: []byte("a"), Data: []byte("one")}, {Seq: 2, Time: 2, Subject: []byte("a"), Data: []byte("two")}}
	ehdb := slices.Clone(nats)
	ehdb[1].Data = []byte("tWo")
	if err := e.Attach(parity.Stream{Scope: orders, NATS: nats, EHDB: ehdb, Config: &server.StreamConfig{}}); err != nil {
		t.Fatal(err)
	}
	e.Tick(t.Context())
	go e.Run(t.Context())
	dir := t.TempDir()
	token, err := face.Token(dir)
	if err != nil {
		t.Fatal(err)
	}
	s = &stage{parity: e, phase: face.PhaseShadow}
	mux := http.NewServeMux()
	for p, h := range face.Routes(face.Options{Engine: s, Token: token}) {
		mux.Handle(p, h)
	}
	hs := httptest.NewServer(mux)
	t.Cleanup(hs.Close)
	return s, func(withToken bool, args ...string) (int, string, string) {
		args = append(args, "--server", hs.URL)
		if withToken {
			args = append(args, "--token-file", filepath.Join(dir, face.TokenFile))
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		return code, out.String(), errs.String()
	}, hs.URL
}

func TestRemoteCommands(t *testing.T) {
	_, ctl := gateway(t)
	for _, tc := range []struct {
		args  string
		token bool
		code  int
		out   string // in standard output, or in standard error
	}{
		{"status", false, 0, "match 1 + not_comparable 0 + mismatch 1"},
		{"status", false, 0, "digest DIFFER"},
		{"status", false, 0, "proxy overhead +210µs p50, +400µs p99  (n 40)"},
		{"status", false, 0, "p50 1.9ms  p99 7.4ms  p99.9 0s  (n 41220, util 22 %)"},
		{"status --scope O*", false, 0, "stream $G/ORDERS"},
		{"status --json", false, 0, `"accounted_for": true`},
		{"plan", false, 0, "a mirror"},
		{"plan", false, 0, "2 0"},
		{"plan", false, 0, "total: 1 streams, 7 messages, 2.0 KiB to copy; the longest takes about 1.5s\ndeliver groups of $G/ORDERS: push/team\n" +
			"queue group: pool of $G work.>, 3 members\n"},
		{"plan", false, 0, "configuration of $G/ORDERS is kept by another program: managed-by=nack"},
		{"gates --scope ORDERS", false, exitNotEnough, "NOT ENOUGH EVIDENCE (UNKNOWN G1 G2"},
		{"gates --scope ORDERS --explain g3", false, exitNotEnough, "this gate cannot be forced"},
		{"gates", false, exitNot, "--scope is missing"},
		{"events", false, 0, "the copy begins"},
		{"diff show --scope ORDERS", false, 0, "full comparison 1: done"},
		{"diff create --wait --scope ORDERS", true, exitNoGo, "full comparison 2: done"},
		{"diff create --wait --since 1h --scope ORDERS", true, exitNoGo, "comparison 3 of a part, not of all: done, what is not older than"},
		{"diff create --wait --sample 10 --scope ORDERS", true, exitNoGo, "a sample of 10 % of the blocks: 1 of 1 blocks"},
		{"diff create --sample 10 --scope ORDERS --dry-run", true, 0, `"sample":10`},
		{"diff create --sample 101 --scope ORDERS", true, exitNot, "101 is no part of 100"},
		{"diff create --since 1h --full --scope ORDERS", true, exitNoGo, "none of the others can be"},
		{"diff create --full --scope ORDERS", true, 0, "a full comparison begins"},
		{"diff create --scope ORDERS --dry-run", false, 0, `would ask the gateway: POST /cutover/v1/diff {"by":`},
		{"diff create --scope ORDERS", true, 0, "UNDO  ehdbctl diff stop --scope '$G/ORDERS'"},
		{"diff resume --scope ORDERS", false, exitNoGo, "mismatch"},
		{"reverse verify --scope ORDERS", true, exitNoGo, "full comparison"},
		{"reverse status", false, 0, "no stream is served from here"},
		{"bypass ls", false, exitNoGo, "1 of 3 connections go around the gateway"},
		{"bypass ls", false, exitNoGo, "client  10.3.1.9:1  cron  -     go 1.36"},
		{"bypass fence --user cron", false, 0, `user: "cron"`},
		{"bypass fence", false, exitNot, "--user is missing"},
		{"keda check", false, exitNoGo, "nobody has asked"},
		{"keda manifest", false, exitNot, "no consumer"},
		{"doctor", false, exitNoGo, "LOOK  1 connections go around the gateway in account $G\n      ehdbctl bypass ls"},
		{"doctor --json", false, exitNoGo, `"ok": false`},
		{"shadow stop --scope ORDERS --dry-run", false, 0, "would ask the gateway: POST /cutover/v1/shadow"},
		{"drill partition --scope ORDERS --dry-run", false, 0, "would ask"},
		{"complete --scope ORDERS --dry-run", false, 0, "would ask"},
		{"flip --scope ORDERS --dry-run --json", false, exitNoGo, `"digest": "7c1e"`},
		{"flip --nonsense", false, exitFailed, "unknown flag"},
		{"diff findings", false, 0, "data @1"},
		{"diff findings --json", false, 0, `"redacted": true`},
		{"diff explain ORDERS:2", false, 0, "--token-file"},
		{"diff explain ORDERS:2", true, 0, `"tWo"`},
		{"diff explain ORDERS:9", true, exitNot, "no such record"},
		{"diff repair 2 --scope ORDERS", true, exitNot, "only a standby"},
		{"diff known add x --first 2 --last 2 --scope ORDERS --reason case", true, 0, "UNDO  ehdbctl diff known rm x"},
		{"parity self-test", false, 0, "lag_beyond_window"},
		{"mode ehdb", false, 0, "ehdbctl flip --scope '$G/ORDERS'"},
		{"mode", false, 0, "legal: flip"},
		{"mode ehdb --scope ORDERS --dry-run", false, 0, "ehdbctl flip --scope '$G/ORDERS'"},
		{"mode ehdb --scope ORDERS", true, 0, "epoch 42"},
		{"mode shadow --scope ORDERS", true, 0, "is in shadow"},
		{"mode canary --scope ORDERS", true, exitNoGo, "ehdbctl canary add"},
		{"mode complete --scope ORDERS", true, exitNoGo, "there is no way to complete; legal: flip"},
		{"shadow backfill --scope ORDERS --rate 50MB/s", true, 0, "at that rate"},
		{"shadow backfill --scope ORDERS --rate 50MB/s --dry-run", true, 0, `"rate":50000000`},
		{"shadow backfill --scope ORDERS --rate fast", true, exitNot, "as 50MB/s"},
		{"shadow stop --scope ORDERS --rate 5", true, exitNoGo, "unknown flag"},
		{"flip --scope subject=core.>", true, exitNot, "whole streams"},
		{"canary add --scope stream=ORDERS", true, 0, "consumer a is served from here\nconsumer b is served from the servers: it pushes\n" +
			"UNDO  ehdbctl canary rm --scope '$G/ORDERS'"},
		{"canary rm --scope ORDERS --dry-run", true, 0, `"remove":true`},
		{"canary add --scope consumer=ORDERS/a", true, 0, "UNDO  ehdbctl canary rm --scope 'consumer=$G/ORDERS/a'"},
		{"mode --json", false, 0, `"phase": "shadow"`},
		{"shadow start --scope ORDERS", false, exitNot, "operator's token"},
		{"shadow start --scope ORDERS", true, 0, "UNDO  ehdbctl shadow stop --scope '$G/ORDERS'"},
		{"flip --dry-run --scope ORDERS", false, exitNoGo, "would be refused: G8"},
		{"flip --scope ORDERS", true, 0, "fence 117ms"},
		{"flip --scope ORDERS", true, 0, "UNDO  ehdbctl rollback"},
		{"flip --scope ORDERS --no-reverse-shadow", true, exitNot, "--i-understand"},
		{"flip --scope ORDERS --no-reverse-shadow --i-understand", true, 0, "epoch 42"},
		{"flip --scope ORDERS --postpone-file x", true, exitNot, "whole path"},
		{"flip --scope ORDERS --force G11=ticket,G21=ticket", true, exitNot, "--force G21: it is about losing"},
		{"flip --scope ORDERS --force G99=ticket --dry-run", false, exitNot, "no such gate: those that can be forced are G5, G6, G7, G10,"},
		{"flip --scope ORDERS --force G11=", true, exitNot, "G11: give a reason"},
		{"complete --scope ORDERS --i-understand --force G3=x", true, exitNot, "those that can be forced are G5"},
		{"plan apply no.yaml --force G1=x", true, exitNot, "those that can be forced are G5"},
		{"flip go --scope ORDERS --dry-run", false, 0, "POST /cutover/v1/flip/go"},
		{"pause", true, exitNot, "--reason is missing"},
		{"pause --reason night", true, 0, "UNDO  ehdbctl resume\n"},
		{"pause --reason night --scope ORDERS", true, 0, "UNDO  ehdbctl resume --scope '$G/ORDERS'"},
		{"resume --scope ORDERS", true, 0, "UNDO  ehdbctl pause --scope '$G/ORDERS' --reason ..."},
		{"throttle", true, exitNot, "give a reason, off, --max-load"},
		{"throttle backup", true, 0, "UNDO  ehdbctl throttle off\n"},
		{"throttle --reason backup --scope ORDERS", true, 0, "UNDO  ehdbctl throttle off --scope '$G/ORDERS'"},
		{"throttle off", true, 0, "UNDO  ehdbctl throttle REASON\n"},
		{"throttle --max-load pubp99=20ms,lag=5s --scope ORDERS", true, 0, "copying gives way above pubp99=20ms,lag=5s\nUNDO  ehdbctl throttle --max-load rtt=7ms --scope '$G/ORDERS'"},
		{"throttle --max-load off --critical-load rtt=1s", true, 0, "--max-load is lifted: copying gives way to no load\ncopying is paused at rtt=1s\n" +
			"UNDO  ehdbctl throttle --max-load lag=9s --critical-load off\n"},
		{
			"throttle --max-load pubp99=200ms,rtt=1s --critical-load rtt=2s,pubp99=20ms", true, exitNot,
			"critical_load pubp99=20ms is below max_load pubp99=200ms: copying would be paused before",
		},
		{"throttle --critical-load speed=9", true, exitNot, `critical_load: "speed=9" is no load: give some of lag, pubp50, pubp99, rtt`},
		{"throttle --max-load rtt=soon", true, exitNot, `rtt: "soon" is no duration`},
		{"throttle backup --max-load rtt=1s", true, exitNot, "give a reason to hold it back for, or loads"},
		{"throttle --max-load off --dry-run", true, 0, `"max_load":"off"`},
		{"shadow backfill --scope ORDERS --max-load pubp99=20ms --dry-run", true, 0, `"max_load":"pubp99=20ms"`},
		{"shadow start --scope ORDERS --critical-load x", true, exitNot, "critical_load:"},
		{"flip --scope ORDERS --expect stale", true, exitNoGo, "the plan has changed"},
		{"flip --scope ORDERS --expect early", true, exitNotEnough, "refused: UNKNOWN G2"},
		{"flip --scope ORDERS --dry-run --no-reverse-shadow", false, exitNotEnough, "would be refused: G8"},
		{"mode ehdb --scope ORDERS --watch", true, exitNot, "the mode is changed once"},
		{"plan --watch", true, exitNoGo, "unknown flag"},
		{"bypass fence --user cron --json", false, 0, `"user": "cron"`},
		{"diff known rm x --scope ORDERS --dry-run", true, 0, "would ask the gateway: DELETE"},
		{"diff known", true, 0, "x  $G/ORDERS 2 to 2"},
		{"diff known rm x --scope ORDERS --json", true, 0, `"done": true`},
		{"diff known rm x --scope ORDERS", true, exitNot, "not found"},
		{"diff repair 2 --scope ORDERS --dry-run --json", true, 0, `"seqs": [`},
		{"rollback --all", true, exitNot, "nothing to roll back"},
		{"approve --scope ORDERS", true, exitNot, "has no approvers' token"},
		{"approve --scope ORDERS --dry-run", false, 0, "POST /cutover/v1/approve"},
		{"complete --scope ORDERS", true, exitNot, "--i-understand"},
		{"canary add --scope consumer=ORDERS", true, exitNot, "consumer=STREAM/NAME"},
		{"drill flip-and-back --load 500/s --scope ORDERS", true, 0, "passed  0 lost"},
		{"drill partition --load 500 --scope ORDERS --url nats://127.0.0.1:1", true, exitNot, "the load cannot log in"},
		{"drill partition --load some --scope ORDERS", true, exitNot, "give messages a second"},
		{"drill abandon 5", true, exitNot, "given up by"},
		{"drill ls", false, 0, "no: it has expired"},
		{"drill show 3", false, 0, `"result": "lost 0"`},
		{"drill show 9", false, exitNot, "there is no drill 9"},
		{"drill fire --scope ORDERS --load 500", true, exitNot, "kind:"},
	} {
		code, out, errs := ctl(tc.token, strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(out+errs, tc.out) {
			t.Errorf("%s: exit %d\n%s%s", tc.args, code, out, errs)
		}
	}
}

// A plan is written, and done as it says; what has changed since is an error before anything is done.
func TestPlanApply(t *testing.T) {
	s, ctl := gateway(t)
	name := filepath.Join(t.TempDir(), "plan.yaml")
	if code, out, errs := ctl(false, "plan", "--out", name); code != 0 || !strings.Contains(out, "plan apply") {
		t.Fatal(code, out, errs)
	}
	if code, _, errs := ctl(false, "plan", "--out", name); code != exitNot || !strings.Contains(errs, "exists") {
		t.Fatal("it was overwritten", errs)
	}
	edit := func(was, is string) {
		t.Helper()
		doc, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(doc), was) {
			t.Fatalf("%v\n%s", err, doc)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(doc), was, is, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := ctl(true, append([]string{"plan", "apply", name}, args...)...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("exit %d\n%s%s", got, out, errs)
		}
	}
	apply(0, "is in shadow")
	edit("to: shadow", "to: ehdb")
	apply(0, "ehdbctl flip --scope '$G/ORDERS'", "--dry-run")
	if len(s.asked) > 0 {
		t.Fatalf("%+v", s.asked)
	}
	apply(0, "epoch 42", "--force", "G11=ticket")
	if r, ok := s.asked[0].(face.FlipRequest); !ok || r.Scope != orders || r.Force["G11"] != "ticket" || r.By == "" {
		t.Fatalf("%+v", s.asked)
	}
	edit("to: ehdb", "to: complete")
	apply(exitNot, "is none of nats, shadow, ehdb")
	edit("to: complete", "to: ehdb")
	edit("digest: d1", "digest: d0")
	apply(exitNoGo, "make a new one")
	edit("digest: d0", "digests: d0")
	apply(exitNot, "is no plan")
}

// What only looks can be looked at again and again, until whoever looks has seen enough, whatever it comes to.
func TestWatch(t *testing.T) {
	_, _, at := gatewayAt(t)
	var all sync.WaitGroup
	for _, args := range []string{
		"status", "gates --scope ORDERS", "events", "diff show --scope ORDERS", "diff findings", "diff explain ORDERS:2", "diff known --json",
		"parity self-test", "reverse status", "bypass ls", "drill ls", "drill show 3", "keda check", "doctor", "mode",
	} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), watchEvery+watchEvery/2)
			defer cancel()
			var once, again, errs bytes.Buffer
			run(ctx, append(strings.Fields(args), "--server", at), &once, &errs)
			run(ctx, append(strings.Fields(args), "--watch", "--server", at), &again, &errs)
			first, _, _ := strings.Cut(once.String(), "\n")
			if n := strings.Count(again.String(), first[:min(len(first), 12)]); n < 2 && args != "events" || n < 1 || errs.Len() > 0 {
				t.Errorf("%s: %d times\n%s%s", args, n, again.String(), errs.String())
			}
		})
	}
	all.Wait()
}

// Loads are one text each, off is none, and those that were not said are left as they are.
func TestLoads(t *testing.T) {
	s, ctl := gateway(t)
	if code, _, errs := ctl(true, "throttle", "--max-load", "pubp99=0.02s,lag=5000ms", "--critical-load", "off", "--by", "ann"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := ctl(true, "shadow", "backfill", "--scope", "ORDERS", "--max-load", "rtt=1s", "--rate", "1MB/s"); code != 0 {
		t.Fatal(errs)
	}
	one, ok := s.asked[0].(face.ThrottleRequest)
	if !ok || *one.Max != "lag=5s,pubp99=20ms" || *one.Critical != "" || one.By != "ann" || one.Scope != (cutover.Scope{}) {
		t.Errorf("%+v", s.asked[0])
	}
	two, ok := s.asked[1].(face.ShadowRequest)
	if !ok || *two.Max != "rtt=1s" || two.Critical != nil || two.Rate != 1e6 {
		t.Errorf("%+v", s.asked[1])
	}
}

// Every command tells what it does without a gateway.
func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "Exit code") {
		t.Fatal(code, out.String())
	}
	for verb := range strings.FieldsSeq(
		"approve bypass canary complete diff doctor drill events evidence flip gates keda mode parity pause plan resume reverse rollback shadow status " +
			"throttle storage") {
		out.Reset()
		if code := run(t.Context(), []string{verb, "--help"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s: exit %d\n%s%s", verb, code, out.String(), errs.String())
		}
	}
}

func TestGatesExitCodes(t *testing.T) {
	s, ctl := gateway(t)
	s.facts = gate.Facts{gate.ControlsOKTicks: {Value: 0, At: time.Now(), Source: "test"}}
	if code, out, _ := ctl(false, "gates", "--scope", "ORDERS"); code != exitNoGo || !strings.Contains(out, "NO-GO (FAIL G1") {
		t.Fatal(code, out)
	}
	for _, name := range gate.FactNames() {
		s.facts[name] = gate.Fact{At: time.Now(), NotApplicable: "not here"}
	}
	s.facts[gate.ControlsOKTicks] = gate.Fact{Value: 2, At: time.Now()}
	code, out, _ := ctl(false, "gates", "--scope", "ORDERS", "--json")
	var r gate.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Verdict != gate.Go {
		t.Fatal(code, out, err)
	}
}

// What an emergency costs is said before, and is the limit that is asked for.
func TestEmergencySaysItsBound(t *testing.T) {
	s, ctl := gateway(t)
	s.phase = face.PhaseEHDB
	s.facts = gate.Facts{gate.ControlsOKTicks: {}} // nothing would be refused
	code, out, errs := ctl(false, "rollback", "--scope", "ORDERS", "--emergency", "--dry-run")
	if code != 0 || !strings.Contains(out, "at most 3 messages would be lost and 1 delivered twice: n/a\n") ||
		!strings.Contains(out, "NEXT  ehdbctl rollback --scope '$G/ORDERS' --emergency\n") || len(s.asked) > 0 {
		t.Fatal(code, out, errs)
	}
	code, _, errs = ctl(true, "rollback", "--all", "--emergency", "--reason", "fire")
	if code != 0 || !strings.Contains(errs, "at most 3 messages are lost and 1 delivered twice") {
		t.Fatal(code, errs)
	}
	if r, ok := s.asked[0].(face.RollbackRequest); !ok || r.MaxLoss != 3 || r.Reason != "fire" || r.By == "" || !r.Emergency {
		t.Fatalf("%+v", s.asked)
	}
}

// TestNoGatewayThere: without a command it is status.
func TestNoGatewayThere(t *testing.T) {
	hs := httptest.NewServer(http.NotFoundHandler())
	at := hs.URL
	t.Setenv("EHDB_SERVER", at)
	for _, want := range []string{"is it an ehdb-gateway", "cannot be asked"} {
		for _, args := range [][]string{{"status", "--server", at}, nil} {
			var out, errs bytes.Buffer
			if code := run(t.Context(), args, &out, &errs); code != exitNot || !strings.Contains(errs.String(), want) {
				t.Fatal(args, code, errs.String())
			}
		}
		hs.Close()
	}
}

func TestEvidenceIsNotOverwritten(t *testing.T) {
	_, ctl := gateway(t)
	name := filepath.Join(t.TempDir(), "bundle.tgz")
	if code, _, errs := ctl(true, "evidence", "export", name); code != 0 {
		t.Fatal(errs)
	}
	if b, err := os.ReadFile(name); err != nil || len(b) < 100 || b[0] != 0x1f {
		t.Fatal(err)
	}
	if code, _, _ := ctl(true, "evidence", "export", name); code != exitNot {
		t.Fatal("it was overwritten")
	}
}
