package e2e

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// nodeDir is the folder of the program that uses the official JavaScript client.
const nodeDir = "clients/node"

// needNode fetches the pinned packages of a program for Node, or skips the test where there is no Node.
func needNode(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI has no Node")
		}
		t.Skip("needs Node 18 or later with npm; CI has it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// TestNodeClient has the official JavaScript client use a server: over TCP and WebSocket, and a real nats-server first,
// which shows that the program asks for what is right.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	needNode(t, nodeDir)
	t.Run("nats-server", func(t *testing.T) {
		ns := startOracle(t, func(o *server.Options) { o.JetStream = true })
		runNode(t, ns.ClientURL())
	})
	for _, scheme := range []string{"nats", "ws"} {
		t.Run(scheme, func(t *testing.T) {
			p := startGateway(t, t.TempDir(), "-c", websocketConfig(t))
			u := p.URL
			if scheme == "ws" {
				u = websocketURL(t, p)
			}
			runNode(t, u)
		})
	}
}

// websocketConfig is a configuration with a port for WebSocket clients.
func websocketConfig(t *testing.T) string {
	t.Helper()
	return writeFile(t, "ws.conf",
		loose()+`websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true }`)
}

// websocketURL reads where the process listens for WebSocket clients from its log.
func websocketURL(t *testing.T, p *process) string {
	t.Helper()
	const says = "Listening for websocket clients on "
	for line := range strings.SplitSeq(p.Log(), "\n") {
		if _, u, ok := strings.Cut(line, says); ok {
			parsed, err := url.Parse(strings.TrimSpace(u))
			noErr(t, err)
			return parsed.String()
		}
	}
	t.Fatalf("the log does not say %q", says)
	return ""
}

func runNode(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "client.mjs", url)
	cmd.Dir = nodeDir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
}
