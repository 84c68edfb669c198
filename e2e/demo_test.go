package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestDemo runs `make demo`, smaller: it takes a minute, so it is in the slow suite. It fails when a message was lost or came
// twice, or a client saw an error.
func TestDemo(t *testing.T) {
	if os.Getenv("EHDB_SLOW") == "" {
		t.Skip("takes a minute or two: set EHDB_SLOW=1")
	}
	dir := t.TempDir()
	gw, ns, demo := filepath.Join(dir, "ehdb-gateway"), filepath.Join(dir, "nats-server"), filepath.Join(dir, "demo")
	for bin, pkg := range map[string]string{
		gw: "./cmd/ehdb-gateway", ns: "github.com/nats-io/nats-server/v2", demo: "./scripts/demo",
	} {
		build := exec.Command("go", "build", "-o", bin, pkg)
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", pkg, err, out)
		}
	}
	c := exec.Command(demo, "-gateway", gw, "-nats", ns, "-rate", "400", "-clients", "40", "-kills", "2", "-json")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var a struct {
		Published, Delivered, Unconfirmed, Lost, Duplicated int
	}
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	if a.Published < 1000 || a.Delivered+a.Unconfirmed < a.Published || a.Lost+a.Duplicated > 0 {
		t.Errorf("%s", out)
	}
}
