package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// supervised is a gateway in bus mode shadow that is started again whenever it ends, as systemd and Kubernetes do.
type supervised struct {
	*before
	t      *testing.T
	ctl    string
	starts int

	mu    sync.Mutex
	ended bool
	all   sync.WaitGroup
}

// supervise starts a gateway before servers, with more in its bus block.
func supervise(t *testing.T, servers []string, more string) *supervised {
	t.Helper()
	client, monitor, store := freePort(t), freePort(t), t.TempDir()
	conf := writeFile(t, "drill.conf", fmt.Sprintf("ehdb { allow_tmp_store: true }\nbus { mode: shadow, profile: drill, "+
		"upstream: [\"%s\"]%s }\n", strings.Join(servers, `", "`), more))
	args := []string{"-c", conf, "-p", strconv.Itoa(client), "-m", strconv.Itoa(monitor)}
	s := &supervised{t: t, ctl: buildCtl(t)}
	s.before = &before{startGateway(t, store, args...), t, store}
	first := s.process
	s.all.Go(func() {
		for p := first; ; {
			<-p.done
			s.mu.Lock()
			if s.ended {
				s.mu.Unlock()
				return
			}
			next, err := launch(store, args...)
			s.starts++
			s.mu.Unlock()
			if err != nil {
				t.Errorf("it does not start again: %v\n%s", err, next.Log())
				return
			}
			p = next
			s.mu.Lock()
			s.process = p
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		s.mu.Lock()
		s.ended = true
		p := s.process
		s.mu.Unlock()
		p.Kill()
		s.all.Wait()
		if t.Failed() {
			t.Logf("log of the last gateway:\n%s", p.Log())
		}
	})
	return s
}

// run runs ehdbctl as the operator.
func (s *supervised) run(args ...string) (string, error) {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	cmd := exec.Command(s.ctl, append(args, "--server", p.Monitor, "--token-file",
		filepath.Join(s.store, "ehdb-cutover", face.TokenFile))...)
	cmd.Env = append(os.Environ(), "NATS_URL="+p.URL)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// gone waits until the streams of drills are on neither side.
func (s *supervised) gone(js jetstream.JetStream) {
	s.t.Helper()
	until(s.t, "what drills left behind is removed", time.Minute, func() error {
		for _, d := range s.drills() {
			if d.State != drill.Running && !d.Tidied {
				return fmt.Errorf("drill %d is not tidied", d.ID)
			}
		}
		return nil
	})
	for name := range js.StreamNames(s.t.Context()).Name() {
		if strings.Contains(name, "_DRILL") {
			s.t.Errorf("stream %s is left on the servers", name)
		}
	}
	var st face.Status
	noErr(s.t, s.ask(http.MethodGet, "/status", nil, &st))
	for i := range st.Streams {
		if name := st.Streams[i].Scope.Stream; strings.Contains(name, "_DRILL") {
			s.t.Errorf("stream %s is left under watch", name)
		}
	}
}

func (s *supervised) drills() []face.Drill {
	s.t.Helper()
	var list face.DrillList
	noErr(s.t, s.ask(http.MethodGet, "/drill", nil, &list))
	return list.Drills
}

// TestDrills: every drill that can be carried out before a single nats-server is, by ehdbctl, and is the evidence that its
// gate asks for, also when the drill itself, or somebody else, has killed the gateway since.
func TestDrills(t *testing.T) {
	t.Parallel() // it waits most of the time
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("the cutover is ours")
	}
	ns := startOracle(t, nil)
	direct, err := jetstream.New(connect(t, ns.ClientURL()))
	noErr(t, err)
	_, err = direct.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	s := supervise(t, []string{ns.ClientURL()}, ", drills: true")
	until(t, "it is under watch", time.Minute, func() error { _, err := s.stream("ORDERS"); return err })
	want := func(id string, state gate.State) {
		t.Helper()
		if g := s.gate("ORDERS", id); g.State != state {
			t.Errorf("%s is %s, not %s: %s", id, g.State, state, g.Reason)
		}
	}
	for _, id := range []string{"G12", "G13", "G14"} {
		want(id, gate.Unknown)
	}
	for _, kind := range []string{drill.RestartWriter, drill.Partition, drill.Stepdown, drill.FlipAndBack, drill.KillGateway} {
		out, err := s.run("drill", kind, "--scope", "ORDERS", "--load", "100/s", "--cut", "2s", "--by", "ops")
		t.Logf("%s", out)
		state := " passed "
		if kind == drill.Stepdown {
			state = ": not_applicable " // there is one server
		}
		if err != nil || !strings.Contains(out, strings.TrimSpace(state)) {
			t.Fatalf("%s: %v", kind, err)
		}
		if kind != drill.KillGateway && s.starts != 0 {
			t.Fatalf("%s has ended the gateway", kind)
		}
	}
	if s.starts != 1 {
		t.Errorf("the gateway was started again %d times", s.starts)
	}
	for _, id := range []string{"G12", "G13", "G14"} {
		want(id, gate.Pass)
	}
	s.gone(direct)
	var events face.EventList
	noErr(t, s.ask(http.MethodGet, "/events", nil, &events))
	var said []string
	for _, e := range events.Events {
		if e.Kind == "drill" {
			said = append(said, e.By+": "+e.Reason)
		}
	}
	for _, want := range []string{
		"ops: restart-writer (1) begins", "ops: restart-writer (1) the fault begins", "ops: restart-writer (1) passed: ",
		"ops: nats-stepdown (3) not_applicable: ", "ops: kill-gateway (5) the fault begins", "ops: kill-gateway (5) passed: ",
	} {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no event %q in %q", want, said)
		}
	}
	for series, want := range map[string]float64{ // it was started again before the last one ended
		`ehdb_cutover_drills_total{drill="kill-gateway",outcome="passed"}`: 1,
		`ehdb_cutover_drills_total{drill="partition",outcome="passed"}`:    0,
		`ehdb_cutover_drill_pass_age_seconds{drill="nats-stepdown"}`:       -1,
	} {
		if got := metric(t, s.process, series); got != want {
			t.Errorf("%s is %v, not %v", series, got, want)
		}
	}
	if age := metric(t, s.process, `ehdb_cutover_drill_pass_age_seconds{drill="partition"}`); age < 0 || age > 600 {
		t.Errorf("passed %v s ago", age)
	}
	for _, d := range s.drills() {
		switch a := d.Account; {
		case d.By != "ops" || d.Image == "" || !d.Expires.After(time.Now()) || d.Lapsed != "":
			t.Errorf("%+v", d)
		case !drill.Loaded(d.Kind) || d.State == drill.NotApplicable:
		case a == nil || a.Published < 100 || a.Delivered < a.Published || d.After == nil || d.After.Examined < a.Published:
			t.Errorf("%s: %+v %+v", d.Kind, a, d.After)
		}
	}
	out, err := s.run("drill", "ls")
	if err != nil || strings.Count(out, "until 20") != 5 {
		t.Errorf("%v\n%s", err, out)
	}
	// One whose load does not run has measured nothing: it has failed, and its gate with it, though one had passed before.
	out, err = s.run("drill", drill.Partition, "--scope", "ORDERS", "--url", "nats://127.0.0.1:1")
	if err == nil || !strings.Contains(out, "failed  not measured: the load cannot log in") {
		t.Errorf("%v\n%s", err, out)
	}
	want("G12", gate.Pass)
	want("G13", gate.Fail)
	s.gone(direct)
}

// TestDrillsAreRefused: a gateway that is not armed does itself no harm; and a drill that nothing came of is a failure.
func TestDrillsAreRefused(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("the cutover is ours")
	}
	ns := startOracle(t, func(o *server.Options) { o.ServerName = "oracle-unarmed" })
	direct, err := jetstream.New(connect(t, ns.ClientURL()))
	noErr(t, err)
	_, err = direct.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	s := supervise(t, []string{ns.ClientURL()}, "")
	until(t, "it is under watch", time.Minute, func() error { _, err := s.stream("ORDERS"); return err })
	for _, kind := range []string{drill.RestartWriter, drill.Partition, drill.KillGateway} {
		if out, err := s.run("drill", kind, "--scope", "ORDERS"); err == nil || !strings.Contains(out, "bus { drills: true }") {
			t.Errorf("%s: %v %s", kind, err, out)
		}
	}
	if n := len(s.drills()); n != 0 {
		t.Errorf("%d drills", n)
	}
}

// TestDrillStepDown: the servers of a cluster choose another leader under load, and nobody loses anything by it.
func TestDrillStepDown(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" || os.Getenv("EHDB_SLOW") == "" {
		t.Skip("starts a cluster: set EHDB_SLOW=1")
	}
	cluster := startCluster(t, 3)
	var urls []string
	for _, s := range cluster {
		urls = append(urls, s.url())
	}
	direct, err := jetstream.New(connect(t, strings.Join(urls, ",")))
	noErr(t, err)
	until(t, "a stream can be made", time.Minute, func() error {
		_, err := direct.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: "BILLS", Subjects: []string{"bills.>"}, Replicas: 3,
		})
		return err
	})
	s := supervise(t, urls, "")
	until(t, "it is under watch", time.Minute, func() error { _, err := s.stream("BILLS"); return err })
	state := func() gate.State {
		t.Helper()
		for _, c := range s.gate("BILLS", "G13").Checks {
			if c.Fact == gate.DrillStepdown {
				return c.State
			}
		}
		t.Fatal("G13 does not ask for it")
		return ""
	}
	if got := state(); got != gate.Unknown {
		t.Errorf("before: %s", got)
	}
	out, err := s.run("drill", drill.Stepdown, "--scope", "BILLS", "--load", "100")
	t.Logf("%s", out)
	if err != nil || state() != gate.Pass {
		t.Fatalf("%v, %s", err, state())
	}
	if f := s.drills()[0].Fault; f.Led == "" || f.Leads == "" || f.Led == f.Leads {
		t.Errorf("%+v", f)
	}
	s.gone(direct)
}
