package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestCClient has the official C client (Debian: libnats-dev) use a server, and a real nats-server first, which shows that
// the program asks for what is right.
func TestCClient(t *testing.T) {
	client := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "cc", "-o", client, "clients/c/client.c", "-lnats").CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI cannot build with the C client: %v\n%s", err, out)
		}
		t.Skip("needs a C compiler and libnats-dev; CI has them")
	}
	use := func(t *testing.T, url string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, client, url).CombinedOutput()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("nats-server", func(t *testing.T) {
		use(t, startOracle(t, func(o *server.Options) { o.JetStream = true }).ClientURL())
	})
	t.Run("gateway", func(t *testing.T) {
		use(t, startGateway(t, t.TempDir()).URL)
	})
}
