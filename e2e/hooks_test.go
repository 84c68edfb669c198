package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// desk is an operator with ehdbctl before a gateway.
type desk struct {
	*before
	ctl string
}

// run runs ehdbctl; the error has what it says.
func (d *desk) run(args ...string) (string, error) {
	d.t.Helper()
	token := filepath.Join(d.store, "ehdb-cutover", face.TokenFile)
	out, err := exec.CommandContext(d.t.Context(), d.ctl,
		append(args, "--server", d.Monitor, "--token-file", token, "--by", "ann", "--reason", "ticket 7")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// does runs ehdbctl, which has to succeed and say something.
func (d *desk) does(want string, args ...string) {
	d.t.Helper()
	if out, err := d.run(args...); err != nil || !strings.Contains(out, want) {
		d.t.Fatalf("%v: no %q in %s%v", args, want, out, err)
	}
}

// refused runs ehdbctl, which has to fail and say why.
func (d *desk) refused(want string, args ...string) {
	d.t.Helper()
	if _, err := d.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		d.t.Fatalf("%v: no %q in %v", args, want, err)
	}
}

// flipArgs is ehdbctl's flip of a stream, without the gates that a test cannot fill.
func flipArgs(more ...string) []string {
	var list []string
	for id, why := range forced {
		list = append(list, id+"="+why)
	}
	return append([]string{"flip", "--scope", "ORDERS", "--retries", "5", "--force", strings.Join(list, ",")}, more...)
}

// ready waits until nothing but what is forced is in the way of a flip of ORDERS.
func (d *desk) ready() {
	d.t.Helper()
	until(d.t, "the gates", time.Minute, func() error {
		var r gate.Report
		if err := d.ask(http.MethodGet, "/gates?scope=ORDERS", nil, &r); err != nil {
			return err
		}
		for _, g := range r.Gates {
			if g.State != gate.Pass && g.State != gate.NotApplicable && forced[g.ID] == "" {
				return fmt.Errorf("%s is %s: %s", g.ID, g.State, g.Reason)
			}
		}
		return nil
	})
}

// phase waits until ORDERS is in a phase.
func (d *desk) phase(want face.Phase) {
	d.t.Helper()
	until(d.t, "phase "+string(want), 20*time.Second, func() error {
		s, err := d.stream("ORDERS")
		if err == nil && s.Phase != want {
			err = fmt.Errorf("it is in %s: %s", s.Phase, s.LastErr)
		}
		return err
	})
}

// newDesk starts a nats-server with the stream ORDERS of 200 messages and a gateway before it.
func newDesk(t *testing.T, more string) (*desk, jetstream.JetStream) {
	t.Helper()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	ctl := buildCtl(t)
	ns := startOracle(t, nil)
	b := startShadowWith(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()}, more)
	js, ctx := jetStream(t, connect(t, b.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	until(t, "shadow", time.Minute, func() error { _, err := b.stream("ORDERS"); return err })
	publishOrders(t, js, 200)
	return &desk{b, ctl}, js
}

func publishOrders(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		_, err := js.Publish(t.Context(), "orders.new", fmt.Append(nil, "first ", i))
		noErr(t, err)
	}
}

// TestHooksAndPostponedFlips: the operator's programs refuse flips and rollbacks, with their reason, before anything is held,
// and are told what became of them; they do not keep an emergency from happening. A flip waits for a word, or until a file
// is gone, and is given up when its window is over.
func TestHooksAndPostponedFlips(t *testing.T) {
	t.Parallel() // it waits most of the time
	dir, told, freeze, friday := t.TempDir(), filepath.Join(t.TempDir(), "told"), filepath.Join(t.TempDir(), "freeze"), t.TempDir()
	hookFile := func(name, text string) string {
		file := filepath.Join(dir, name)
		noErr(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // a program
		return file
	}
	refuseWhile := func(file, why string) string {
		return fmt.Sprintf("if [ -e %s ]; then echo '%s' >&2; exit 1; fi", file, why)
	}
	flipHook := hookFile("on-before-flip", refuseWhile(freeze, "change freeze"))
	hookFile("on-before-rollback", refuseWhile(friday, "not on a friday"))
	for _, name := range []string{"on-begin-postponed", "on-success", "on-failure"} {
		hookFile(name, `echo "$EHDB_EVENT $EHDB_VERB $EHDB_SCOPE by $EHDB_BY: $EHDB_ERROR" >>`+told)
	}
	d, js := newDesk(t, fmt.Sprintf("hooks: %q, hook_timeout: 20", dir))
	d.ready()
	d.does("hooks in "+dir+" can be run: on-before-flip", "doctor")

	// A veto: before anything is held.
	noErr(t, os.WriteFile(freeze, nil, 0o600))
	d.refused("hook on-before-flip: change freeze", flipArgs()...)
	events, err := d.run("events")
	noErr(t, err)
	if !strings.Contains(events, "a hook has refused it") || !strings.Contains(events, "on-before-flip: change freeze") ||
		strings.Contains(events, "a flip began") {
		t.Errorf("events:\n%s", events)
	}
	if n := metric(t, d.process, `ehdb_cutover_hooks_total{hook="on-before-flip",result="refused"}`); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
	noErr(t, os.Remove(freeze))

	// Postponed: aborted, given up, vetoed, released by a word.
	d.refused("there is no file "+freeze, flipArgs("--postpone-file", freeze)...)
	d.refused("whole path", flipArgs("--postpone-file", "freeze")...)
	d.does("NEXT  ehdbctl flip go", flipArgs("--postpone")...)
	d.refused("is postponed", flipArgs()...)
	if s, err := d.stream("ORDERS"); err != nil || s.Postponed == nil || s.Postponed.By != "ann" ||
		strings.Join(s.Legal, ",") != "flip go,flip abort" {
		t.Errorf("%+v %v", s, err)
	}
	d.does("nothing has changed", "flip", "abort", "--scope", "ORDERS")
	d.refused("no flip of $G/ORDERS is postponed", "flip", "go", "--scope", "ORDERS")
	d.does("waits", flipArgs("--postpone", "--hold-window", "300ms")...)
	until(t, "it is given up", 10*time.Second, func() error {
		s, err := d.stream("ORDERS")
		if err == nil && (s.Postponed != nil || !strings.Contains(s.LastErr, "whole hold window")) {
			err = fmt.Errorf("%+v %q", s.Postponed, s.LastErr)
		}
		return err
	})
	noErr(t, os.WriteFile(freeze, nil, 0o600))
	d.does("waits", flipArgs("--postpone")...)
	d.refused("change freeze", "flip", "go", "--scope", "ORDERS")
	d.phase(face.PhaseShadow)

	// Until a file is gone.
	wait := filepath.Join(t.TempDir(), "wait")
	noErr(t, os.WriteFile(wait, nil, 0o600))
	noErr(t, os.Remove(freeze))
	d.does("waits", flipArgs("--postpone-file", wait)...)
	d.does("waits for the file "+wait, "status")
	d.phase(face.PhaseShadow)
	noErr(t, os.Remove(wait))
	d.phase(face.PhaseEHDB)
	publishOrders(t, js, 20)

	// A rollback is refused; an emergency is not.
	d.refused("not on a friday", "rollback", "--scope", "ORDERS")
	d.phase(face.PhaseEHDB)
	until(t, "the servers have everything", 10*time.Second, func() error {
		s, err := d.stream("ORDERS")
		if err == nil && s.Back.Lost > 0 {
			err = fmt.Errorf("%d", s.Back.Lost)
		}
		return err
	})
	d.does("lost 0", "rollback", "--scope", "ORDERS", "--emergency")
	d.phase(face.PhaseShadow)
	until(t, "that is noted", 10*time.Second, func() error {
		events, err = d.run("events")
		if err == nil && !strings.Contains(events, "on-before-rollback refused: hook on-before-rollback: not on a friday") {
			err = fmt.Errorf("%s", events)
		}
		return err
	})

	// All was told, in order; a hook that is broken refuses, and says so before.
	until(t, "all is told", 10*time.Second, func() error {
		b, err := os.ReadFile(told)
		if err != nil {
			return err
		}
		rest := string(b)
		for _, want := range []string{
			"on-begin-postponed flip $G/ORDERS by ann", "on-failure flip $G/ORDERS by ann: it was aborted",
			"on-begin-postponed", "whole hold window", "on-begin-postponed", "on-begin-postponed",
			"on-success flip $G/ORDERS by ann: \n", "on-success rollback $G/ORDERS by ann: \n",
		} {
			var ok bool
			if _, rest, ok = strings.Cut(rest, want); !ok {
				return fmt.Errorf("no %q in\n%s", want, b)
			}
		}
		return nil
	})
	noErr(t, os.Chmod(flipHook, 0o600))
	d.refused("on-before-flip is not executable", "doctor")
	d.ready()
	d.refused("on-before-flip is not executable", flipArgs()...)
}

// TestPauseAndNoWayBack: a pause is named wherever somebody looks, and keeps a flip from beginning. A flip without a reverse
// shadow is refused until it is understood; then the gates, the status and the doctor say what a rollback would lose, and
// only an emergency takes it.
func TestPauseAndNoWayBack(t *testing.T) {
	t.Parallel() // it waits most of the time
	d, js := newDesk(t, "")
	d.ready()
	d.does("copying is paused", "pause", "--scope", "ORDERS")
	d.does("copying   PAUSED: ticket 7", "status")
	publishOrders(t, js, 5)
	d.refused("copying is paused: ticket 7", flipArgs()...)
	d.refused("ehdbctl resume --scope '$G/ORDERS'", "doctor")
	d.does("copying goes on", "resume", "--scope", "ORDERS")
	d.ready()

	d.refused("NO reverse chain", flipArgs("--no-reverse-shadow", "--dry-run")...)
	d.refused("--i-understand", flipArgs("--no-reverse-shadow")...)
	d.does("authority EHDB", flipArgs("--no-reverse-shadow", "--i-understand")...)
	publishOrders(t, js, 7)
	d.does("NOT lossless now: lost 7, at most 0 twice: it was flipped with --no-reverse-shadow", "status")
	if g := d.gate("ORDERS", "G21"); g.State != gate.Fail || !strings.Contains(g.Forced, "--no-reverse-shadow") {
		t.Errorf("%+v", g)
	}
	d.refused("LOOK  $G/ORDERS can be rolled back without a loss", "doctor")
	d.refused("--no-reverse-shadow", "rollback", "--scope", "ORDERS")
	d.phase(face.PhaseEHDB)
	out, err := d.run("rollback", "--scope", "ORDERS", "--emergency")
	if noErr(t, err); !strings.Contains(out, "lost 7") || !strings.Contains(out, "NEXT  ehdbctl shadow reset --scope '$G/ORDERS'") {
		t.Errorf("%s", out)
	}
	d.phase(face.PhaseShadow)

	// The copy has what was lost: wherever somebody looks, the remedy is named.
	const remedy = "ehdbctl shadow reset --scope '$G/ORDERS' fills it anew"
	d.does(remedy, "status")
	d.refused(remedy, "doctor")
	d.refused(remedy, "flip", "--scope", "ORDERS", "--dry-run")
	until(t, "G3 says so", 20*time.Second, func() error {
		_, err := d.run("gates", "--scope", "ORDERS", "--explain", "G3")
		if err == nil || strings.Contains(err.Error(), remedy) {
			return nil
		}
		return err
	})
	d.does("NEXT", "shadow", "reset", "--scope", "ORDERS")
	if s, err := d.stream("ORDERS"); err != nil || s.Leftover != "" {
		t.Errorf("%+v %v", s, err)
	}
	d.ready()
	events, err := d.run("events")
	noErr(t, err)
	for _, want := range []string{"the copy is filled anew", "copying is paused", "copying goes on", "without a way back: the servers are not kept equal"} {
		if !strings.Contains(events, want) {
			t.Errorf("no %q in\n%s", want, events)
		}
	}
}
