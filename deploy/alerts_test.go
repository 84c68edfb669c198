package deploy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

const ruleFile = "kubernetes/monitoring/prometheusrule.yaml"

// rule is one alert.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// alerts returns the alerts, and the file with them in Prometheus's own form.
func alerts(t *testing.T) (all []rule, file []byte) {
	t.Helper()
	b, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Spec struct {
			Groups []struct {
				Rules []rule
			}
		}
	}
	var raw struct{ Spec map[string]any }
	for _, v := range []any{&o, &raw} {
		if err := yaml.Unmarshal(b, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range o.Spec.Groups {
		all = append(all, g.Rules...)
	}
	if file, err = yaml.Marshal(raw.Spec); err != nil {
		t.Fatal(err)
	}
	return all, file
}

// stands is a stream that is served from here.
func stands() face.Standing {
	return face.Standing{Bypass: []face.BypassState{{Account: "$G"}}, Streams: []face.StreamStanding{{
		Scope: cutover.Scope{Account: "$G", Stream: "S"}, Phase: face.PhaseEHDB, Reverse: &face.ReverseState{},
		Gates: &gate.Report{Gates: []gate.Result{{ID: "G1"}}},
	}}}
}

// families returns the names of all series that a gateway shows, on its own and before others.
func families(t *testing.T) map[string]bool {
	t.Helper()
	own := metrics.Sources{
		Gateway:   func() metrics.Gateway { return metrics.Gateway{Disconnects: map[string]uint64{"Client Closed": 0}} },
		JetStream: func() metrics.JetStream { return metrics.JetStream{} },
		Durables:  func(fn func(metrics.Durable)) bool { fn(metrics.Durable{Filters: []string{"s"}}); return true },
		Shards:    1,
	}
	moves := face.NewMoveMetrics(func(string) time.Time { return time.Now() })
	moves.Flippable(cutover.Scope{Account: "$G", Stream: "S"})
	moves.Watched(cutover.Scope{Account: "$G", Stream: "S"}, "c")
	before := metrics.Sources{
		Upstream: func() metrics.Upstream {
			return metrics.Upstream{Servers: []metrics.UpstreamServer{{Name: "n"}}}
		},
		Extra: []prometheus.Collector{face.Metrics(compared(t)), moves, face.StandingMetrics(stands), face.NewMoved(), metrics.NewMirrors(func() []metrics.Mirror {
			return []metrics.Mirror{{Stream: "S", Records: map[string]uint64{"drained": 0}}}
		})},
	}
	names := map[string]bool{}
	for _, s := range []metrics.Sources{own, before} {
		m := metrics.New()
		m.Ready(s)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for line := range strings.SplitSeq(w.Body.String(), "\n") {
			if name := regexp.MustCompile(`^[a-z_0-9]+`).FindString(line); name != "" {
				names[name] = true
			}
		}
	}
	return names
}

// nothing is a stream without messages.
type nothing struct{ cutover.Reader }

func (nothing) State(context.Context, bool) (server.StreamState, error) {
	return server.StreamState{}, nil
}

// compared returns an engine that compares a stream with a consumer.
func compared(t *testing.T) *parity.Engine {
	t.Helper()
	e, err := parity.New(parity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Attach(parity.Stream{
		Scope: cutover.Scope{Account: "$G", Stream: "S"}, NATS: nothing{}, EHDB: nothing{}, Config: &server.StreamConfig{},
		Consumers: func(context.Context) ([]parity.Consumer, error) { return []parity.Consumer{{Name: "c"}}, nil },
	}); err != nil {
		t.Fatal(err)
	}
	e.Tick(t.Context())
	return e
}

// TestAlerts: every expression is one, speaks of series that exist, and leads to a section of the runbook.
func TestAlerts(t *testing.T) {
	all, _ := alerts(t)
	if len(all) < 10 {
		t.Fatalf("%d alerts", len(all))
	}
	names, sections := families(t), anchors(t, runbook)
	tests, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if v, is := n.(*parser.VectorSelector); is && !names[v.Name] {
				t.Errorf("%s: /metrics has no %q", r.Alert, v.Name)
			}
			return nil
		})
		_, section, _ := strings.Cut(r.Annotations["runbook_url"], "docs/failure-modes.md#")
		if !sections[section] {
			t.Errorf("%s: the runbook has no section %q", r.Alert, section)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", r.Alert)
		}
		if !regexp.MustCompile(`alertname: ` + r.Alert + `\n +exp_alerts:\n`).Match(tests) {
			t.Errorf("%s: no unit test in which it fires", r.Alert)
		}
	}
}

// TestAlertsWithPromtool runs the alerts' unit tests. PROMTOOL names a promtool; without it a pinned one is built, which
// takes minutes.
func TestAlertsWithPromtool(t *testing.T) {
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		if os.Getenv("EHDB_SLOW") == "" {
			t.Skip("slow: set EHDB_SLOW, or PROMTOOL to a promtool")
		}
		promtool = buildPromtool(t)
	}
	_, rules := alerts(t)
	tests, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range map[string][]byte{"rules.yaml": rules, "tests.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Join(dir, "tests.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// buildPromtool builds promtool in a module of its own: it needs far more modules than this one, and "go run" does not
// take it, for the replacements in its go.mod.
func buildPromtool(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"mod", "init", "promtool"},
		{"get", "github.com/prometheus/prometheus/cmd/promtool@v0.312.0"},
		{"build", "-o", "promtool", "github.com/prometheus/prometheus/cmd/promtool"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, "promtool")
}
