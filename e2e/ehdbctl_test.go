package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// ctl runs ehdbctl and returns its output and exit code.
func ctl(t *testing.T, bin string, args ...string) (out string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String() + stderr.String(), exit.ExitCode()
	}
	noErr(t, err)
	return stdout.String(), 0
}

// buildCtl returns ehdbctl, which is built for the first test that wants it.
func buildCtl(t *testing.T) string {
	t.Helper()
	builtCtl.Do(func() {
		builtCtl.bin = filepath.Join(builtDir, "ehdbctl")
		builtCtl.out, builtCtl.err = exec.Command("go", "build", "-o", builtCtl.bin, "../cmd/ehdbctl").CombinedOutput()
	})
	if builtCtl.err != nil {
		t.Fatalf("building ehdbctl: %v\n%s", builtCtl.err, builtCtl.out)
	}
	return builtCtl.bin
}

var builtCtl struct {
	sync.Once
	bin string
	out []byte
	err error
}

// dumped returns the data of the records of a stream, by sequence, as ehdbctl shows them.
func dumped(t *testing.T, bin, dir, log string) map[uint64]string {
	t.Helper()
	out, code := ctl(t, bin, "storage", "dump", "--json", dir, log)
	if code != 0 && code != 1 {
		t.Fatalf("dump: exit code %d: %s", code, out)
	}
	got := map[uint64]string{}
	for sc := bufio.NewScanner(strings.NewReader(out)); sc.Scan(); {
		var r struct {
			Seq  uint64
			Data []byte
		}
		if json.Unmarshal(sc.Bytes(), &r) == nil {
			got[r.Seq] = string(r.Data)
		}
	}
	return got
}

// TestDamageAndRepair: what a killed gateway leaves verifies, and ehdbctl shows its messages. With a byte changed the
// gateway refuses to start; after ehdbctl storage repair it serves all messages but those that ehdbctl reported as lost.
func TestDamageAndRepair(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	bin, store := buildCtl(t), t.TempDir()
	dir := filepath.Join(store, "ehdb")
	// Nothing is sealed meanwhile: the damage is to be in the write-ahead log.
	p := startGateway(t, store, "-c", writeFile(t, "late.conf", "ehdb { allow_tmp_store: true, seal_max_age: 1h }"))
	js, ctx := jetStream(t, connect(t, p.URL))
	want := map[string]map[uint64]string{"A": {}, "B": {}}
	for name := range want {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		noErr(t, err)
	}
	for i := range 200 {
		for name, msgs := range want {
			data := fmt.Sprintf("message %d of %s", i, name)
			ack, err := js.Publish(ctx, name+".x", []byte(data))
			noErr(t, err)
			msgs[ack.Sequence] = data
		}
	}
	if out, code := ctl(t, bin, "storage", "verify", dir); code != 0 {
		t.Fatalf("beside the running gateway: exit code %d: %s", code, out)
	}
	if out, code := ctl(t, bin, "storage", "repair", dir); code != 2 || !strings.Contains(out, "stop it first") {
		t.Fatalf("a repair beside the running gateway: exit code %d: %s", code, out)
	}
	p.Kill()
	if out, code := ctl(t, bin, "storage", "verify", dir); code != 0 {
		t.Fatalf("after the kill: exit code %d: %s", code, out)
	}
	for name, msgs := range want {
		if got := dumped(t, bin, dir, "$G/"+name); fmt.Sprint(got) != fmt.Sprint(msgs) {
			t.Fatalf("dump of %s: %d messages, want %d", name, len(got), len(msgs))
		}
	}

	damaged := damageText(t, dir, "message 100 of A")
	out, code := ctl(t, bin, "storage", "verify", dir)
	if code != 1 || !strings.Contains(out, "damage: "+damaged+", offset ") || !strings.Contains(out, "$G/A") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if q, err := launch(store); err == nil {
		q.Kill()
		t.Fatal("the gateway started with damaged data")
	}
	if out, code = ctl(t, bin, "storage", "repair", dir); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	q := startGateway(t, store)
	served(t, q, want, out)
}

// damageText changes one byte of a text in the file that has it, whose name below dir it returns: in the write-ahead
// log, or where that was sealed to.
func damageText(t *testing.T, dir, text string) (file string) {
	t.Helper()
	for _, pattern := range []string{"wal/*.seg", "manifest/*", "parts/*.part"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		noErr(t, err)
		for _, name := range names {
			b, err := os.ReadFile(name)
			noErr(t, err)
			if at := bytes.Index(b, []byte(text)); at >= 0 {
				b[at] ^= 1
				noErr(t, os.WriteFile(name, b, 0o600))
				rel, err := filepath.Rel(dir, name)
				noErr(t, err)
				return filepath.ToSlash(rel)
			}
		}
	}
	t.Fatalf("no file in %s has %q", dir, text)
	return ""
}

var lostLine = regexp.MustCompile(`\$G/(\w+), sequences (\d+) to (\d+)`)

// reportedLost tells whether a report of ehdbctl says that a message is lost.
func reportedLost(t *testing.T, report, stream string, seq uint64) bool {
	t.Helper()
	for _, m := range lostLine.FindAllStringSubmatch(report, -1) {
		first, err := strconv.ParseUint(m[2], 10, 64)
		noErr(t, err)
		last, err := strconv.ParseUint(m[3], 10, 64)
		noErr(t, err)
		if m[1] == stream && first <= seq && seq <= last {
			return true
		}
	}
	return false
}

// served holds what a repaired gateway serves against what was acknowledged: only what the report names may be missing.
func served(t *testing.T, p *process, want map[string]map[uint64]string, report string) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	lost := 0
	for name, msgs := range want {
		s, err := js.Stream(ctx, name)
		noErr(t, err)
		for seq, data := range msgs {
			m, err := s.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				if lost++; !reportedLost(t, report, name, seq) {
					t.Errorf("message %d of %s is lost, and that is not reported: %s", seq, name, report)
				}
				continue
			}
			noErr(t, err)
			if string(m.Data) != data {
				t.Errorf("message %d of %s is %q, want %q", seq, name, m.Data, data)
			}
		}
		ack, err := js.Publish(ctx, name+".x", []byte("after"))
		noErr(t, err)
		if ack.Sequence != 201 {
			t.Errorf("the next message of %s has sequence %d", name, ack.Sequence)
		}
	}
	if lost == 0 || lost > 200 {
		t.Errorf("%d messages are lost, want those that share a block with the damaged one", lost)
	}
}

// TestRepairKeepsAStreamWithoutConfiguration: when the catalog's entry of a stream is lost the stream is there after the
// repair, with its messages, and can be given a configuration again.
func TestRepairKeepsAStreamWithoutConfiguration(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	bin, store := buildCtl(t), t.TempDir()
	dir := filepath.Join(store, "ehdb")
	p := startGateway(t, store)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "LOST", Subjects: []string{"lost.>"}})
	noErr(t, err)
	for range 20 {
		_, err := js.Publish(ctx, "lost.x", []byte("kept"))
		noErr(t, err)
	}
	p.Kill()
	damageText(t, dir, `"stream":"LOST"`)
	out, code := ctl(t, bin, "storage", "repair", dir)
	name := regexp.MustCompile(`configuration of stream (\S+) of`).FindStringSubmatch(out) // its own may be lost, too
	if code != 0 || len(name) == 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for range 2 { // the gateway removes what its catalog does not know, at each start
		q := startGateway(t, store)
		js, ctx := jetStream(t, connect(t, q.URL))
		s, err := js.Stream(ctx, name[1])
		noErr(t, err)
		if n := s.CachedInfo().State.Msgs; n < 20 {
			t.Fatalf("%d messages", n)
		}
		_, err = js.UpdateStream(ctx, jetstream.StreamConfig{Name: name[1], Subjects: []string{"lost.>"}})
		noErr(t, err)
		_, err = js.Publish(ctx, "lost.x", []byte("more"))
		noErr(t, err)
		q.Kill()
	}
}
