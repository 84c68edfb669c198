package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a log in a new file.
func openFile(t *testing.T, o Options) (*Logger, string) {
	t.Helper()
	o.File = filepath.Join(t.TempDir(), "log")
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, o.File
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLinesAreNatsServers(t *testing.T) {
	l, file := openFile(t, Options{Time: true, Debug: true, Trace: true})
	ctx := context.Background()
	l.Info("Listening for client connections on {addr}", slog.String("addr", "0.0.0.0:4222"))
	l.Warn("w")
	l.Error("e", slog.Any("error", errors.New("no such thing")))
	l.Debug("d", slog.Int("n", 1))
	l.Log(ctx, LevelTrace, "t")
	want := []string{
		`[INF] Listening for client connections on 0.0.0.0:4222`, `[WRN] w`, `[ERR] e error="no such thing"`,
		`[DBG] d n=1`, `[TRC] t`,
	}
	lines := strings.Split(strings.TrimSpace(read(t, file)), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %q", lines)
	}
	for i, line := range lines {
		stamp := regexp.MustCompile(fmt.Sprintf(`^\[%d\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (.*)$`, os.Getpid()))
		if m := stamp.FindStringSubmatch(line); m == nil || m[1] != want[i] {
			t.Errorf("want %q with pid and time, got %q", want[i], line)
		}
	}
}

func TestWithoutTime(t *testing.T) {
	l, file := openFile(t, Options{})
	l.Info("m")
	if got, want := read(t, file), fmt.Sprintf("[%d] [INF] m\n", os.Getpid()); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestLevels(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{}, "INF"},
		{Options{Debug: true}, "DBG INF"},
		{Options{Trace: true}, "TRC INF"},
		{Options{Debug: true, Trace: true}, "TRC DBG INF"},
	} {
		for _, asJSON := range []bool{false, true} {
			tc.o.JSON = asJSON
			l, file := openFile(t, tc.o)
			l.Log(context.Background(), LevelTrace, "TRC")
			l.Debug("DBG")
			l.Info("INF")
			var got []string
			for _, m := range []string{"TRC", "DBG", "INF"} {
				if strings.Contains(read(t, file), m) {
					got = append(got, m)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%+v: want %q, got %q", tc.o, tc.want, got)
			}
		}
	}
}

func TestLevelsCanChange(t *testing.T) {
	l, file := openFile(t, Options{})
	l.Debug("first")
	l.SetLevels(true, false)
	l.Debug("second")
	l.SetLevels(false, false)
	l.Debug("third")
	if got := read(t, file); strings.Contains(got, "first") || !strings.Contains(got, "second") || strings.Contains(got, "third") {
		t.Errorf("got %q", got)
	}
}

// What a client sends must not be able to write a line of its own.
func TestNoForgedLines(t *testing.T) {
	l, file := openFile(t, Options{})
	evil := "x\n[1] [INF] Server is ready\x1b[2J"
	l.Info("name {name}", slog.String("name", evil), slog.String("other", evil))
	if got := read(t, file); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

func TestPlacesAndAttributes(t *testing.T) {
	l, file := openFile(t, Options{})
	g := l.With(slog.Int("cid", 7)).WithGroup("conn").With(slog.String("user", "a b"))
	g.Info("{cid} is {conn.user}, {unknown} {", slog.Group("g", slog.Int("n", 1)), slog.String("s", "{cid}"))
	want := fmt.Sprintf("[%d] [INF] 7 is a b, {unknown} { conn.g.n=1 conn.s={cid}\n", os.Getpid())
	if got := read(t, file); got != want {
		t.Errorf("want %q\ngot  %q", want, got)
	}
}

func TestJSON(t *testing.T) {
	l, file := openFile(t, Options{JSON: true, Trace: true})
	l.Info("on {addr}", slog.String("addr", "x:1"))
	l.Log(context.Background(), LevelTrace, "t")
	dec := json.NewDecoder(strings.NewReader(read(t, file)))
	var first, second map[string]any
	if err := errors.Join(dec.Decode(&first), dec.Decode(&second)); err != nil {
		t.Fatal(err)
	}
	if first["msg"] != "on x:1" || first["addr"] != "x:1" || first["level"] != "INFO" ||
		first["pid"] != float64(os.Getpid()) || second["level"] != "TRACE" {
		t.Errorf("got %v %v", first, second)
	}
}

func TestReopen(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		l, file := openFile(t, Options{JSON: asJSON})
		l.Info("before")
		if err := os.Rename(file, file+".1"); err != nil {
			t.Fatal(err)
		}
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 100 {
					l.Info("during")
				}
			})
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		writers.Wait()
		l.Info("after")
		old, fresh := read(t, file+".1"), read(t, file)
		if !strings.Contains(old, "before") || !strings.Contains(fresh, "after") ||
			strings.Count(old+fresh, "during") != 400 {
			t.Errorf("json %v: lines went astray: %d and %d bytes", asJSON, len(old), len(fresh))
		}
	}
	l, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); !errors.Is(err, ErrNoFile) {
		t.Errorf("got %v", err)
	}
}

func TestRotation(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		l, file := openFile(t, Options{JSON: asJSON, SizeLimit: 2000})
		for i := range 100 {
			l.Info("line", slog.Int("i", i))
		}
		files, err := filepath.Glob(file + "*")
		if err != nil || len(files) < 2 {
			t.Fatalf("json %v: not rotated: %v %v", asJSON, files, err)
		}
		var all bytes.Buffer
		for _, f := range files {
			all.WriteString(read(t, f))
		}
		if n := strings.Count(all.String(), "line"); n != 100 {
			t.Errorf("json %v: %d of 100 lines are there", asJSON, n)
		}
	}
}

func TestOpenFails(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		if _, err := New(Options{File: filepath.Join(t.TempDir(), "none", "log"), JSON: asJSON}); err == nil {
			t.Error("a log in a directory that is not there opens")
		}
	}
	if _, err := New(Options{JSON: true, Syslog: true}); err == nil {
		t.Error("JSON goes to syslog")
	}
}

func TestRotatedFilesAreDropped(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		l, file := openFile(t, Options{JSON: asJSON, SizeLimit: 2000, MaxFiles: 3})
		for i := range 200 {
			l.Info("line", slog.Int("i", i))
			time.Sleep(100 * time.Microsecond) // the files are named by the time
		}
		files, err := filepath.Glob(file + "*")
		if err != nil || len(files) != 3 {
			t.Errorf("json %v: %d files are left (%v)", asJSON, len(files), err)
		}
		if last := read(t, file) + read(t, files[len(files)-1]); !strings.Contains(last, "199") {
			t.Errorf("json %v: the last line is lost", asJSON)
		}
	}
}

func TestUTC(t *testing.T) {
	local := time.Local //nolint:gosmopolitan // what is tested
	time.Local = time.FixedZone("far", 11*3600)
	t.Cleanup(func() { time.Local = local })
	for _, utc := range []bool{false, true} {
		l, file := openFile(t, Options{Time: true, UTC: utc})
		now := time.Now()
		l.Info("m")
		if utc {
			now = now.UTC()
		}
		if got, want := read(t, file), now.Format("2006/01/02 15:"); !strings.Contains(got, want) {
			t.Errorf("utc %v: got %q, want %s", utc, got, want)
		}
	}
}

func TestRemoteSyslog(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := New(Options{RemoteSyslog: "udp://" + c.LocalAddr().String()})
	if err != nil {
		t.Fatal(err)
	}
	l.Info("hello {who}", slog.String("who", "there"))
	l.Error("bad")
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello there", "bad"} {
		buf := make([]byte, 4096)
		n, _, err := c.ReadFrom(buf)
		if err != nil || !strings.Contains(string(buf[:n]), want) {
			t.Errorf("got %q (%v), want %s", buf[:n], err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestLocalSyslog logs to the machine's syslog socket. Where there is none, as in containers, the test listens on it.
func TestLocalSyslog(t *testing.T) {
	const socket = "/dev/log"
	if _, err := os.Stat(socket); err == nil {
		t.Skip("this machine has a syslog daemon, which the test would fill")
	}
	c, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Skipf("only root may listen where the syslog daemon does: %v", err)
	}
	defer os.Remove(socket)
	defer c.Close()
	l, err := New(Options{Syslog: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Warn("hello {who}", slog.String("who", "there"))
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, _, err := c.ReadFrom(buf)
	if err != nil || !strings.Contains(string(buf[:n]), "hello there") {
		t.Errorf("got %q (%v)", buf[:n], err)
	}
	const daemon, warning = 3, 4
	if want := fmt.Sprintf("<%d>", daemon<<3|warning); !strings.HasPrefix(string(buf[:n]), want) { //nolint:mnd // RFC 3164
		t.Errorf("got %q, nats-server's lines begin with %s", buf[:n], want)
	}
}
