package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/lease"
)

// TestOneAuthority: a gateway that has the say about a stream does not run for longer than its lease lasts. Another with a
// store_dir of its own does not start; another on a copy of its store_dir takes over. When the first one runs again it
// acknowledges nothing and ends, and it does not start again on a store_dir that is older by then. Nor does a store_dir
// from before the flip.
func TestOneAuthority(t *testing.T) {
	if os.Getenv("EHDB_SLOW") == "" || os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("slow: it waits for the end of a lease (EHDB_SLOW=1); it is about the cutover")
	}
	ns := startOracle(t, nil)
	url := ns.ClientURL()
	first := startShadow(t, []string{url}, []string{"http://" + ns.MonitorAddr().String()})
	js := newJS(t, first.URL)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)
	for range 200 {
		_, err := js.Publish(t.Context(), "s.a", []byte("x"))
		noErr(t, err)
	}
	before := t.TempDir()
	until(t, "the flip", time.Minute, func() error {
		copyDir(t, first.store, before)
		_, err := first.flip("S")
		return err
	})
	copied := t.TempDir()
	copyDir(t, first.store, copied)

	late := connect(t, first.URL) // a client whose publish comes while the gateway does not run
	answers, err := late.SubscribeSync("answers")
	noErr(t, err)
	noErr(t, late.Flush())
	first.Signal(syscall.SIGSTOP)
	time.Sleep(17 * time.Second)
	noErr(t, late.PublishRequest("s.a", "answers", []byte("late")))
	conf := writeFile(t, "other.conf", fmt.Sprintf("ehdb { allow_tmp_store: true }\nbus { mode: shadow, upstream: [%q] }\n", url))
	wantRefused := func(what, dir string, want error) {
		t.Helper()
		p, err := launch(dir, "-c", conf)
		if err == nil {
			p.Kill()
			t.Errorf("%s starts", what)
			return
		}
		<-p.done
		if !strings.Contains(p.Log(), want.Error()) {
			t.Errorf("%s does not say why it does not start:\n%s", what, p.Log())
		}
	}
	wantRefused("a gateway with a store_dir of its own", t.TempDir(), lease.ErrElsewhere)
	second := startGateway(t, copied, "-c", conf)
	ack, err := newJS(t, second.URL).Publish(t.Context(), "s.a", []byte("by the second"))
	noErr(t, err)
	first.Signal(syscall.SIGCONT)
	<-first.done
	if m, err := answers.NextMsg(time.Second); err == nil {
		t.Errorf("the first one has answered a publish: %s", m.Data)
	}
	if !strings.Contains(first.Log(), lease.ErrTwin.Error()) {
		t.Errorf("it does not say why it ends:\n%s", first.Log())
	}
	until(t, "the servers know", 10*time.Second, func() error {
		m, err := newJS(t, url).Stream(t.Context(), "S")
		if err != nil {
			return err
		}
		_, err = m.GetMsg(t.Context(), ack.Sequence)
		return err
	})
	noErr(t, second.Stop())
	wantRefused("the store_dir of the first", first.store, lease.ErrStale)
	wantRefused("a store_dir from before the flip", before, lease.ErrStale)
	again := startGateway(t, copied, "-c", conf)
	next, err := newJS(t, again.URL).Publish(t.Context(), "s.a", []byte("again"))
	noErr(t, err)
	if next.Sequence != ack.Sequence+1 {
		t.Errorf("it goes on at %d, behind %d", next.Sequence, ack.Sequence)
	}
}

// copyDir makes to a copy of from.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	noErr(t, os.RemoveAll(to))
	if out, err := exec.Command("cp", "-r", filepath.Clean(from), to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func newJS(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t, url, nats.MaxReconnects(-1)))
	noErr(t, err)
	return js
}
