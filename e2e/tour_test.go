package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReadmeTour runs the tour of the README word for word, with the real nats CLI, and kills the server where it says so.
func TestReadmeTour(t *testing.T) {
	cli, err := filepath.Abs(natsCLI)
	noErr(t, err)
	if _, err := os.Stat(cli); err != nil {
		t.Fatalf("the nats CLI is not built (make tools): %v", err)
	}
	readme, err := os.ReadFile("../README.md")
	noErr(t, err)
	blocks := regexp.MustCompile("(?s)```sh tour\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	want := []string{ // what each block must show
		"hello world", "Messages: 3", "Outstanding Acks", "blue", "ORDERS",
	}
	if len(blocks) != len(want) {
		t.Fatalf("the tour has %d blocks, the test knows %d", len(blocks), len(want))
	}
	dir, work := t.TempDir(), t.TempDir()
	p := startGateway(t, dir)
	for i, b := range blocks {
		if i == len(blocks)-1 {
			p.Kill()
			p = startGateway(t, dir)
		}
		out := shell(t, work, b[1], "PATH="+filepath.Dir(cli)+":"+os.Getenv("PATH"), "NATS_URL="+p.URL, "HOME="+work)
		if !strings.Contains(out, want[i]) {
			t.Errorf("block %d does not show %q:\n%s\n%s", i+1, want[i], b[1], out)
		}
	}
}

// shell runs a script that stops at its first error.
func shell(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v in\n%s\n%s", err, script, out)
	}
	return string(out)
}
