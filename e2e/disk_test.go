package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// smallDisk mounts a tmpfs of the given size: a real file system that really fills up, even for root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("this test needs to mount a tmpfs, and that is refused here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill publishes until the server refuses, and returns the ledger of what was acknowledged and the refusal.
func fill(ctx context.Context, t *testing.T, js jetstream.JetStream, l *ledger) error {
	t.Helper()
	for n := range 100_000 {
		data := fmt.Sprintf("%d %0100000d", n, 0)
		l.sent(data)
		a, err := js.Publish(ctx, "k.fill", []byte(data))
		if err != nil {
			return err
		}
		l.acked(a.Sequence, data)
	}
	t.Fatal("the disk never filled up")
	return nil
}

// isReasoned tells whether err is an answer of the server with a JetStream error, and not a silence.
func isReasoned(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode != 0
}

// recovers publishes until it succeeds again, for at most a minute.
func recovers(ctx context.Context, t *testing.T, js jetstream.JetStream, l *ledger) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		l.sent("again")
		a, err := js.Publish(ctx, "k.again", []byte("again"))
		if err == nil {
			l.acked(a.Sequence, "again")
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("service does not resume: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func healthz(t *testing.T, p *process) (int, string) {
	t.Helper()
	resp, err := http.Get(p.Monitor + "/healthz")
	noErr(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	noErr(t, err)
	return resp.StatusCode, string(body)
}

// TestFullDisk fills the disk: each publish is refused with a reason, what was acknowledged stays readable, and service
// resumes by itself, without a restart, when there is room.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, "256m")
	filler := filepath.Join(disk, "filler")
	noErr(t, os.WriteFile(filler, make([]byte, 100<<20), 0o600))
	dir, l := filepath.Join(disk, "store"), newLedger()
	noErr(t, os.Mkdir(dir, 0o700))
	p := startGateway(t, dir)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}})
	noErr(t, err)
	if err := fill(ctx, t, js, l); !isReasoned(err) {
		t.Errorf("a full disk is answered with: %v", err)
	} else {
		t.Logf("%d messages, then: %v", len(l.published), err)
	}
	verify(t, p, l)
	noErr(t, os.Remove(filler))
	recovers(ctx, t, js, l)
	if code, body := healthz(t, p); code != http.StatusOK {
		t.Errorf("healthz after the recovery: %d %s", code, body)
	}
	p.Kill()
	p = startGateway(t, dir)
	verify(t, p, l)
	for _, x := range l.problems {
		t.Error(x)
	}
}

// TestReadOnlyDisk starts on a read-only file system: the start is refused and the message names the path and the reason.
// (A file system cannot be made read-only while files on it are open for writing; I/O errors under a running server are
// injected in the tests of storage and jetstreamapi.)
func TestReadOnlyDisk(t *testing.T) {
	disk := smallDisk(t, "16m")
	dir := filepath.Join(disk, "store")
	noErr(t, os.Mkdir(dir, 0o700))
	noErr(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	conf := looseConfig(t.TempDir())
	p := &process{dir: dir, done: make(chan struct{})}
	p.cmd = exec.Command(gatewayBin, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", dir, "-c", conf)
	if err := p.start(); err == nil {
		p.Kill()
		t.Fatal("it started")
	}
	for _, want := range []string{dir, "read-only file system"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("the refusal does not name %q:\n%s", want, p.Log())
		}
	}
}

// TestSmallDiskAgain fills a small disk and purges, again and again: each time it takes messages again at once, and about
// as many as before, however long the write-ahead log has grown meanwhile.
func TestSmallDiskAgain(t *testing.T) {
	p := startGateway(t, smallDisk(t, "80m"))
	js, ctx := jetStream(t, connect(t, p.URL))
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}})
	noErr(t, err)
	for round := range 5 {
		l := newLedger()
		if err := fill(ctx, t, js, l); !isReasoned(err) {
			t.Fatalf("round %d: a full disk was answered with %v", round, err)
		}
		if mb := len(l.published) / 10; mb < 10 {
			t.Errorf("round %d: it was full after %d MB", round, mb)
		}
		noErr(t, s.Purge(ctx))
		recovers(ctx, t, js, l)
	}
}
