package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestCommandLine runs nats-server and the gateway with the arguments of testdata/commandline.txt: both must end with the
// same code and the same words, or both must serve.
func TestCommandLine(t *testing.T) {
	if os.Getenv("EHDB_E2E_BUS") != "" {
		t.Skip("it is about the gateway's own command line")
	}
	b, err := os.ReadFile("testdata/commandline.txt")
	noErr(t, err)
	oracle := natsServer(t)
	taken := takenPort(t)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			line := strings.ReplaceAll(line, "%TAKEN", taken)
			ours, outcomeOnly := "", false
			if rest, differs := strings.CutPrefix(line, `!"`); differs {
				ours, line, _ = strings.Cut(rest, `" `)
			} else if rest, only := strings.CutPrefix(line, "~ "); only {
				line, outcomeOnly = rest, true
			}
			want, got := ended(t, oracle, line), ended(t, gatewayBin, line)
			switch {
			case ours != "" && strings.Contains(got.String(), ours) && !strings.Contains(want.String(), ours):
			case ours == "" && want.code == got.code && want.served == got.served && (outcomeOnly || want.text == got.text):
			default:
				t.Errorf("nats-server: %v\ngateway:     %v", want, got)
			}
			if testing.Verbose() {
				t.Logf("nats-server: %v", want)
			}
		})
	}
}

// natsServer returns a nats-server's binary, which it builds if it is not there yet.
func natsServer(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(builtDir, "nats-server")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v\n%s", err, out)
	}
	return bin
}

// outcome is how a program ended: served tells one that had to be told to.
type outcome struct {
	code   int
	served bool
	text   string // what it wrote, without what names it
}

func (o outcome) String() string {
	return fmt.Sprintf("code:%d served:%v %s", o.code, o.served, o.text)
}

// takenPort returns a port of 127.0.0.1 that something listens on.
func takenPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// ended runs bin with "arguments | configuration" until it ends or is ready, in a directory of its own.
func ended(t *testing.T, bin, line string) outcome {
	t.Helper()
	args, conf, _ := strings.Cut(line, " | ")
	dir := t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(dir, "c.conf"), []byte(strings.ReplaceAll(conf, `\n`, "\n")+"\n"), 0o600))
	noErr(t, os.WriteFile(filepath.Join(dir, "words"), []byte("words\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, bin, strings.Fields(args)...)
	c.Dir = dir
	var out watched
	c.Stdout, c.Stderr = &out, &out
	noErr(t, c.Start())
	done := make(chan struct{})
	go func() {
		for ; ; time.Sleep(2 * time.Millisecond) {
			select {
			case <-done:
				return
			default:
			}
			if strings.Contains(out.String(), "Server is ready") {
				_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
				return
			}
		}
	}()
	_ = c.Wait() // the code tells
	close(done)
	text := out.String()
	served := strings.Contains(text, "Server is ready")
	if served {
		text = ""
	}
	return outcome{c.ProcessState.ExitCode(), served, plainWords(text)}
}

// watched is a buffer that can be read meanwhile.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// itself are the names of the programs, the usage, which each has its own of, and what ours says of the file.
var itself = regexp.MustCompile(`(?s)(nats-server|ehdb-gateway)( processes)?(: )?|Usage: .*|configuration file (c\.conf|none|words): |\n`)

func plainWords(text string) string {
	return strings.TrimSpace(itself.ReplaceAllString(strings.TrimPrefix(text, "\n"), ""))
}
