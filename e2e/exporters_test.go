package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// needTool returns the binary of a program in another Go module: the one that the environment variable names, or else
// one that is built from the module. Without both the test is skipped: it says what a module proxy answered.
func needTool(t *testing.T, variable, module, version string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	cmd := exec.Command("go", "install", module+"@"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+builtDir, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("%s cannot be had here (set %s to a binary): %v\n%s", module, variable, err, out)
	}
	return filepath.Join(builtDir, filepath.Base(module))
}

// series scrapes a page of metrics that a program serves on addr, until it has some with the prefix, and returns them
// as name{labels} and value, without what differs between any two servers.
func series(t *testing.T, addr, prefix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for range 200 {
		time.Sleep(100 * time.Millisecond)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		conn.Close()
		for line := range strings.Lines(string(getPage(t, "http://"+addr+"/metrics").body)) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
			if ok && strings.HasPrefix(name, prefix) {
				found[ownLabels.ReplaceAllString(name, `$1="#"`)] = value
			}
		}
		if len(found) > 100 { // the first answer may come before anything was asked
			return found
		}
	}
	t.Fatalf("%s shows only %d series with %s", addr, len(found), prefix)
	return nil
}

var (
	// ownLabels differ between any two servers; a consumer's leader is known here, which scalers want (TestKEDA).
	ownLabels = regexp.MustCompile(`\b(cid|port|server_id|value|consumer_leader|server_ip|nats_server_host)="[^"]*"`)
	// ownValues differ between any two servers or moments.
	ownValues = regexp.MustCompile(`_(time|start|start_time|mem|mem_bytes|cpu|cpu_percentage|port|http_port|now|rtt|rtt_\w+|uptime|idle|` +
		`last_activity|max_storage|max_memory|seconds|\w+_seconds|duration_ns|api_total|api_requests|size_bytes|num_\w+|subs_count|` +
		`avg_fanout|max_fanout|cache_hit_rate|subscriptions|sub_count|sent_bytes|bytes_sent|client_bytes_sent|out_bytes|` +
		`out_client_bytes|https?_req_stats\w*|total_bytes|stream_bytes|storage|bytes|duration_seconds_\w+|timestamp|memory|pending_bytes)\{`)
)

// TestExporters has the exporters for Prometheus read a nats-server and a gateway: the same series, the same values
// where these are determined.
func TestExporters(t *testing.T) {
	for _, c := range []struct {
		name, variable, module, version, prefix string
		args                                    func(e endpoint, port string) []string
	}{
		{
			"prometheus-nats-exporter", "EHDB_E2E_EXPORTER", "github.com/nats-io/prometheus-nats-exporter", "v0.20.1", "nats_",
			func(e endpoint, port string) []string {
				return strings.Fields("-a 127.0.0.1 -p " + port + " -varz -connz -connz_detailed -routez -subz -gatewayz -leafz -accstatz " +
					"-accountz -healthz -healthz_js_enabled_only -healthz_js_server_only -jsz=all -prefix=nats -use_internal_server_name " +
					e.Monitor)
			},
		},
		{
			"nats-surveyor", "EHDB_E2E_SURVEYOR", "github.com/nats-io/nats-surveyor", "v0.9.9", "nats_",
			func(e endpoint, port string) []string {
				return strings.Fields("-a 127.0.0.1 -p " + port + " -s " + e.URL + " --user sys --password sys -c 1 --accounts " +
					"--accounts-detailed --gatewayz --raftz --jsz all")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := needTool(t, c.variable, c.module, c.version)
			compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
				a := as(t, e, "a", nats.Name("one"))
				js, err := a.JetStream()
				noErr(t, err)
				for _, cfg := range []*nats.StreamConfig{
					{Name: "S", Subjects: []string{"s.>"}, MaxMsgs: 10},
					{Name: "M", Mirror: &nats.StreamSource{Name: "S"}},
					{Name: "Q", Sources: []*nats.StreamSource{{Name: "S"}}, Storage: nats.MemoryStorage},
				} {
					_, err = js.AddStream(cfg)
					noErr(t, err)
				}
				for i := range 3 {
					_, err = js.Publish(fmt.Sprint("s.", i), []byte("hello"))
					noErr(t, err)
				}
				_, err = js.AddConsumer("S", &nats.ConsumerConfig{Durable: "C", AckPolicy: nats.AckExplicitPolicy})
				noErr(t, err)
				sub, err := js.PullSubscribe("", "C", nats.Bind("S", "C"))
				noErr(t, err)
				msgs, err := sub.Fetch(2)
				noErr(t, err)
				noErr(t, msgs[0].AckSync())
				port := strconv.Itoa(freePort(t))
				cmd := exec.Command(tool, c.args(e, port)...)
				noErr(t, cmd.Start())
				defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
				tr.pause(500 * time.Millisecond) // the copies follow
				found := series(t, "127.0.0.1:"+port, c.prefix)
				var lines []string
				for name, value := range found {
					if ownValues.MatchString(name) {
						value = "#"
					}
					lines = append(lines, name+"} "+value)
				}
				slices.Sort(lines)
				tr.lines = append(tr.lines, lines...)
			})
		})
	}
}
