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
	"propagation": {
		"hour 01: seeded 19 tasks, then 0", "announcements: steady [00 01 02], flaky [01 02], late [02]",
		"reconciler: repaired 1 of 57\nreconciler: repaired 0 of 57",
	},
}

// TestExamples runs each example twice against one gateway: the second time it finds what it left.
func TestExamples(t *testing.T) {
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
	p := startGateway(t, t.TempDir())
	for name, want := range exampleLines {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				cmd := exec.CommandContext(ctx, filepath.Join(bin, name))
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
		})
	}
}
