package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// TestComplete: the way back is given up behind G24 alone: a restart was survived, the servers are equal, a second person
// approves, and it is said what is to be retired. Then there is none, and the servers can go.
func TestComplete(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	if os.Getenv("EHDB_SLOW") == "" {
		t.Skip("slow: the comparison's window is half a minute, twice")
	}
	t.Parallel()
	ns := startOracle(t, nil)
	b := startShadow(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()})
	js, ctx := jetStream(t, connect(t, b.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	noErr(t, err)
	publish := func(js jetstream.JetStream, n int) {
		t.Helper()
		for range n {
			_, err := js.Publish(ctx, "orders", []byte("x"))
			noErr(t, err)
		}
	}
	until(t, "shadow", time.Minute, func() error { _, err := b.stream("ORDERS"); return err })
	for range 400 { // one after the other, so that the window is soon measured
		publish(js, 1)
		time.Sleep(2 * time.Millisecond)
	}
	until(t, "it is flipped", time.Minute, func() error { _, err := b.flip("ORDERS"); return err })
	publish(js, 50)

	b.Kill()
	conf := b.cmd.Args[len(b.cmd.Args)-1]
	b.process = startGateway(t, b.store, "-c", conf)
	js, ctx = jetStream(t, connect(t, b.URL))
	publish(js, 50)
	g24 := func() gate.Result {
		t.Helper()
		var r gate.Report
		noErr(t, b.ask(http.MethodGet, "/gates?for=complete&scope=$G/ORDERS", nil, &r))
		return r.Gates[len(r.Gates)-1]
	}
	facts := map[string]gate.CheckResult{}
	until(t, "the servers are equal", 30*time.Second, func() error {
		for _, c := range g24().Checks {
			facts[c.Fact] = c
		}
		return met(func() bool { return facts[gate.ReverseLag].State == gate.Pass })()
	})
	if c := facts[gate.BakeRestarts]; c.Value != 1 || c.State != gate.Pass {
		t.Errorf("restarts: %+v", c)
	}
	for _, name := range []string{gate.Credentials, gate.SecondApprover} {
		if c := facts[name]; c.State != gate.Pending || !strings.Contains(c.Detail, "ehdbctl complete --") {
			t.Errorf("%+v", c)
		}
	}
	ask := func(more map[string]any) error {
		q := map[string]any{"by": "ann", "reason": "a test", "scope": "$G/ORDERS", "understood": true, "force": forced}
		maps.Copy(q, more)
		return b.ask(http.MethodPost, "/complete", q, &struct{}{})
	}
	for why, more := range map[string]map[string]any{
		"(PENDING G24)": nil,
		"(FAIL G24)":    {"approved_by": "ann", "credentials": "the user orders"},
	} {
		until(t, why, time.Minute, func() error { // all other gates pass
			if err := ask(more); err == nil || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("%v: %w, want %s", more, err, why)
			}
			return nil
		})
	}
	approved := map[string]any{"approved_by": "bob", "credentials": "the user orders"}
	until(t, "it is completed", time.Minute, func() error { return ask(approved) })
	st, err := b.stream("ORDERS")
	noErr(t, err)
	if st.Phase != face.PhaseComplete || st.ReversibleUntil != "" || len(st.Legal) > 0 {
		t.Errorf("%+v", st)
	}
	if _, err := b.rollback("ORDERS"); err == nil {
		t.Error("it was rolled back all the same")
	}
	publish(js, 10)

	ns.Shutdown() // and the system before is gone
	noErr(t, b.Stop())
	alone := startGateway(t, b.store)
	js, ctx = jetStream(t, connect(t, alone.URL))
	publish(js, 10)
	s, err := js.Stream(ctx, "ORDERS")
	noErr(t, err)
	if got := s.CachedInfo().State; got.Msgs != 520 || got.LastSeq != 520 {
		t.Errorf("%+v", got)
	}
}
