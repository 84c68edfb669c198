package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// needCLI returns the path of the nats CLI.
func needCLI(t *testing.T) string {
	t.Helper()
	cli, err := filepath.Abs(natsCLI)
	noErr(t, err)
	if _, err := os.Stat(cli); err != nil {
		t.Fatalf("the nats CLI is not built (make tools): %v", err)
	}
	return cli
}

// What differs between two runs in the CLI's tables, in the order it is replaced.
var (
	randoms = regexp.MustCompile(`N[A-Z0-9]{55}|sha256:\w+|/tmp/\S+|_INBOX\.\S+`)
	figures = regexp.MustCompile(`\d[\d.:,-]*( ?([KMG]i)?B|[KMG]\b|µs|ms|s|%)?`)
	blanks  = regexp.MustCompile(`[ ─│╭╮╰╯┬┴┼├┤█▏]+`)
	// An always synced log, which may be compressed, and a switch of nats-server's own storage.
	ownRows = regexp.MustCompile(`js_raft_delete_range|sync_always|compress_ok|Always sync writes|Cluster Message Compression`)
)

// addRows records what a command of the CLI printed: JSON by its shape, anything else without figures.
func addRows(tr *transcript, line, out string) {
	var rows []string
	for row := range strings.Lines(out) {
		var doc any
		switch err := json.Unmarshal([]byte(row), &doc); {
		case ownRows.MatchString(row) && err != nil:
		case err == nil && strings.HasPrefix(row, "{"):
			rows = append(rows, shape(doc, "name", "account", "authorized_user", "status", "error", "code", "description"))
		default:
			row = figures.ReplaceAllString(randoms.ReplaceAllString(row, "#"), "#")
			rows = append(rows, strings.TrimSpace(blanks.ReplaceAllString(row, " ")))
		}
	}
	if inNoOrder.MatchString(line) {
		slices.Sort(rows)
	}
	tr.Add("%s: %s", line, strings.Join(rows, "\n"))
}

// inNoOrder are the commands whose lists nats-server gives in no order.
var inNoOrder = regexp.MustCompile(`report accounts|account info`)

// TestNATSCLIServerCommands runs the CLI's commands for operators, as a user of the system account and as one who is not.
func TestNATSCLIServerCommands(t *testing.T) {
	t.Parallel() // it waits most of the time
	cli := needCLI(t)
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		home := t.TempDir()
		a := as(t, e, "a", nats.Name("one"))
		js, err := a.JetStream()
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}})
		noErr(t, err)
		_, err = js.AddConsumer("S", &nats.ConsumerConfig{Durable: "C", AckPolicy: nats.AckExplicitPolicy})
		noErr(t, err)
		_, err = js.Publish("s", []byte("hello"))
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "M", Mirror: &nats.StreamSource{Name: "S"}})
		noErr(t, err)
		kv, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "K"})
		noErr(t, err)
		_, err = kv.PutString("k", "v")
		noErr(t, err)
		_, err = a.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond([]byte("echoed")) })
		noErr(t, err)
		noErr(t, a.Flush())
		for range 100 { // until the mirror has followed
			if si, err := js.StreamInfo("M"); err == nil && si.State.Msgs == 1 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		for user, script := range map[string]string{"sys:sys": serverScript, "a:a": checkScript} {
			url := strings.Replace(e.URL, "//", "//"+user+"@", 1)
			for line := range strings.Lines(script) {
				line = strings.TrimSpace(line)
				if line == "" {
					continue
				}
				out, err := runCLI(cli, home, url, strings.ReplaceAll(line, "ID", a.ConnectedServerId()))
				tr.Add("%s: %v", line, err)
				addRows(tr, line, out)
			}
		}
		slices.SortStableFunc(tr.lines, func(x, y string) int { return cmp.Compare(x, y) }) // of the two users in any order
	})
}

// serverScript holds a command a line, for a user of the system account.
const serverScript = `
	server info s1
	server info ID
	server info other
	server list
	server list --json
	server list --sort mem
	server ping --count 1
	server report connections
	server report connections --account A
	server report connections --state closed --account NONE
	server report accounts
	server report cpu
	server report mem
	server report jetstream
	server report jetstream --account A
	server report health
	server report routes
	server report gateways
	server report leafnodes
	server report downgrade 1
	server check connection
	server check server --name s1 --js-required --auth-required --conn-warn 100 --conn-critical 200 --uptime-warn 1us --uptime-critical 1us
	server check server --name s1 --tls-required
	server check jetstream
	server check meta --expect 1 --lag-critical 1 --seen-critical 1s
	server check server --name other
	server request accounts
	server request connections --filter-account A --subscriptions
	server request connections --limit 1
	server request connections --name other
	server request gateways
	server request jetstream --account A
	server request jetstream --raft
	server request jetstream-health
	server request jetstream-health --account A --stream S
	server request jetstream-health --account A --stream NONE
	server request jetstream-health --account A --stream S --consumer NONE
	server request leafnodes
	server request profile heap
	server request profile goroutine --level 1
	server request raft
	server request routes
	server request subscriptions
	server request variables
	server request kick 9999 s1
	server config reload other -f
	account info
`

// checkScript holds a command a line, for a user of the account with streams.
const checkScript = `
	server check stream --stream S
	server check stream --stream S --msgs-warn 1 --msgs-critical 1
	server check stream --stream S --subjects-warn 2 --subjects-critical 5
	server check stream --stream S --min-sources 1 --max-sources 2
	server check stream --stream S --peer-expect 1 --peer-lag-critical 1 --peer-seen-critical 1s
	server check stream --stream M --lag-critical 10 --seen-critical 1m
	server check stream --stream NONE
	server check consumer --stream S --consumer C
	server check consumer --stream S --consumer C --unprocessed-critical 1 --last-delivery-critical 1s
	server check consumer --stream S --consumer NONE
	server check message --stream S --subject s --content h.llo --age-warn 1h --age-critical 2h
	server check message --stream S --subject s --content other
	server check message --stream S --subject none
	server check kv --bucket K --key k
	server check kv --bucket K --key none
	server check kv --bucket K --values-warn 5 --values-critical 9
	server check kv --bucket NONE
	server check jetstream --store-warn 10 --store-critical 20 --streams-warn 50 --streams-critical 90
	server check jetstream --format prometheus
	server check request --subject echo --match-payload echoed
	server check request --subject nobody
	server check connection --format json
	account report connections
	account report statistics
	account tls
	server list
	server report accounts
	trace echo hello
	trace nobody
	trace s hello
	trace s --deliver hello
`

// TestNATSCLIReload has the CLI reload a server's configuration.
func TestNATSCLIReload(t *testing.T) {
	cli := needCLI(t)
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		url := strings.Replace(e.URL, "//", "//sys:sys@", 1)
		sys := as(t, e, "sys")
		out, err := runCLI(cli, t.TempDir(), url, "server config reload -f "+sys.ConnectedServerId())
		tr.Add("reload: %v", err)
		addRows(tr, "reload", out)
	})
}

// TestNATSCLIEvents has the CLI listen to events while somebody connects, is refused and leaves.
func TestNATSCLIEvents(t *testing.T) {
	cli := needCLI(t)
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		cmd := exec.Command(cli, "events", "--all", "--json")
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "NATS_URL="+strings.Replace(e.URL, "//", "//sys:sys@", 1))
		var out bytes.Buffer
		cmd.Stdout = &out
		sys := as(t, e, "sys")
		noErr(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		for range 100 { // until it listens: its own subscriptions are seen
			m, err := sys.Request("$SYS.REQ.SERVER.PING.CONNZ", []byte(`{"subscriptions":true}`), 5*time.Second)
			noErr(t, err)
			if bytes.Contains(m.Data, []byte("CLIENT.AUTH.ERR")) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		one := connect(t, e.URL, nats.UserInfo("a", "a"), nats.Name("one"))
		noErr(t, one.Flush())
		one.Close()
		_, err := nats.Connect(e.URL, nats.UserInfo("a", "wrong"))
		tr.Add("wrong password: %v", err)
		tr.pause(time.Second)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		var events []string
		for dec := json.NewDecoder(&out); ; {
			var event map[string]any
			if dec.Decode(&event) != nil {
				break
			}
			client, _ := event["client"].(map[string]any)
			if client["acc"] != "SYS" { // the CLI's own
				events = append(events, shape(event, "type", "acc", "user", "name", "reason"))
			}
		}
		slices.Sort(events)
		for _, event := range events {
			tr.Add("%s", event)
		}
		if len(events) < 3 {
			t.Errorf("only %d events", len(events))
		}
	})
}

// TestNATSCLIWatch has the CLI watch the API's requests of all accounts. Its other views want a terminal; what they show are
// the events that TestOperatorInventory compares.
func TestNATSCLIWatch(t *testing.T) {
	cli := needCLI(t)
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		sys, a := as(t, e, "sys"), as(t, e, "a")
		var out watched
		cmd := exec.Command(cli, "server", "watch", "api", "requests")
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "NATS_URL="+strings.Replace(e.URL, "//", "//sys:sys@", 1))
		cmd.Stdout = &out
		noErr(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		when(t, "it listens", func() bool {
			return bytes.Contains(request(t, sys, "$SYS.REQ.SERVER.PING.CONNZ", `{"subscriptions":true}`), []byte("$JS.API."))
		})
		own := subscribe(t, sys, "$JS.API.>") // a copy: what is answered is the request itself
		for _, subject := range []string{"STREAM.INFO.NONE", "STREAM.NAMES", "CONSUMER.INFO.NONE.C"} {
			tr.Raw(subject, request(t, a, "$JS.API."+subject, ""))
			tr.Add("%s", next(t, own).Subject)
		}
		when(t, "the table", func() bool { return strings.Contains(out.String(), "consumer_info_request") })
		table := out.String()
		addRows(tr, "watch api requests", table[strings.LastIndex(table, "Type"):])
	})
}

// TestNATSCLITop has the CLI show the connections of a server as top does.
func TestNATSCLITop(t *testing.T) {
	cli := needCLI(t)
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		home := t.TempDir()
		_ = as(t, e, "a", nats.Name("one"))
		file := filepath.Join(home, "top.txt")
		_, err := runCLI(cli, home, strings.Replace(e.URL, "//", "//sys:sys@", 1), "top s1 --output "+file)
		tr.Add("top: %v", err)
		shown, err := os.ReadFile(file)
		noErr(t, err)
		addRows(tr, "top", string(shown))
	})
}
