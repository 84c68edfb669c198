package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exampleLines is what each program in examples must say.
var exampleLines = map[string][]string{
	"pubsub":    {"is on disk", "greetings.ada: hello ada", "greetings.barbara: hello barbara"},
	"kv":        {"colour is green", "seen: blue", "seen: green"},
	"objects":   {"report.txt: 3800000 bytes in 29 chunks", "the same came back: true"},
	"workqueue": {"done: resize at delivery 1", "done: flaky at delivery 2", "dead: garbage after 1 deliveries: terminated cannot be parsed", "dead: broken after 3 deliveries: max_deliver"},
	"autoscale": {"lag 60, workers 4", "lag 0, workers 0"},
	"feed":      {"event: tick 1\nevent: tick 2\nthe connection is gone\nevent: tick 3\nevent: tick 4\nevent: tick 5\nthe connection is gone\n"},
	"propagation": {
		"hour 01: seeded 19 tasks, then 0", "announcements: steady [00 01 02], flaky [01 02], late [02]",
		"reconciler: repaired 1 of 57\nreconciler: repaired 0 of 57",
	},
}

// TestExamples runs each example twice against one gateway: the second time it finds what it left.
func TestExamples(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../examples/*/main.go")
	noErr(t, err)
	if len(found) != len(exampleLines) {
		t.Errorf("%d examples, the test knows %d", len(found), len(exampleLines))
	}
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../examples/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := startAsMakeRun(t)
	for name, want := range exampleLines {
		t.Run(name, func(t *testing.T) { runTwice(t, p, want, "", filepath.Join(bin, name)) })
	}
}

// startAsMakeRun starts a gateway as make run does, but for ports and directory.
func startAsMakeRun(t *testing.T) *process {
	t.Helper()
	return startGateway(t, t.TempDir(), "-c", "../examples/run.conf", "--allow_tmp_store")
}

// runTwice runs an example twice and looks for the lines it must say.
func runTwice(t *testing.T, p *process, want []string, dir, program string, args ...string) {
	t.Helper()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "NATS_URL="+p.URL, "MONITOR_URL="+p.Monitor)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("no %q in\n%s", w, out)
			}
		}
	}
}

// TestNodeExamples runs the examples for Node.
func TestNodeExamples(t *testing.T) {
	t.Parallel()
	const dir = "../examples/node"
	needNode(t, dir)
	p := startAsMakeRun(t)
	for name, want := range map[string][]string{
		"pubsub": {"is on disk", "node.greetings.ada: hello ada", "node.greetings.barbara: hello barbara"},
		"feed": {"event 1: tick 1\nevent 2: tick 2\nthe connection is gone\nevent 3: tick 3\nevent 4: tick 4\nevent 5: tick 5\n" +
			"the connection is gone\n"},
	} {
		t.Run(name, func(t *testing.T) { runTwice(t, p, want, dir, "npm", "run", "--silent", name) })
	}
}
