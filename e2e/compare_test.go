package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// endpoint is one of the two servers a case runs on.
type endpoint struct {
	Name    string // "nats-server" or "gateway"
	URL     string
	Monitor string
}

// transcript is what a case saw, line by line.
type transcript struct {
	lines []string
	again int  // how often the case was played before
	timed bool // the case waited by the clock: on a busy machine that may have been too short
}

// patience returns how long to wait for what may come within d on a machine that is not busy: longer in each replay.
func (tr *transcript) patience(d time.Duration) time.Duration {
	tr.timed = true
	return d * time.Duration(1+tr.again)
}

// pause lets the servers do what they do some time after they have answered.
func (tr *transcript) pause(d time.Duration) { time.Sleep(tr.patience(d)) }

// Add records a line.
func (tr *transcript) Add(format string, args ...any) {
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

// JSON records v as JSON, with what differs between any two runs (times, ids, names of servers) replaced.
func (tr *transcript) JSON(label string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		tr.Add("%s: %v", label, err)
		return
	}
	tr.Raw(label, b)
}

// Raw records JSON bytes, normalised as JSON does. Bytes that are no JSON are recorded as they are.
func (tr *transcript) Raw(label string, b []byte) {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		tr.Add("%s: %q", label, b)
		return
	}
	n, err := json.Marshal(normalise("", v))
	if err != nil {
		panic(err) // it was just unmarshalled
	}
	tr.Add("%s: %s", label, n)
}

// Header records the header lines of m, sorted, and its body.
func (tr *transcript) Msg(label string, m *nats.Msg) {
	h, err := json.Marshal(m.Header) // sorts the names
	if err != nil {
		panic(err)
	}
	tr.Add("%s: subject=%s header=%s data=%q", label, scrub(m.Subject), scrub(string(h)), m.Data)
}

var (
	timeText  = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`)
	ackTime   = regexp.MustCompile(`(\$JS\.ACK\.[^ "]*?\.)\d{19}(\.\d+)`)
	inboxText = regexp.MustCompile(`_INBOX\.[A-Za-z0-9.]+`)
)

func scrub(s string) string {
	s = timeText.ReplaceAllString(s, "<time>")
	s = ackTime.ReplaceAllString(s, "${1}<time>$2")
	return inboxText.ReplaceAllString(s, "<inbox>")
}

// volatile are the JSON fields that differ between any two servers or runs.
var volatile = map[string]bool{
	"created": true, "ts": true, "time": true, "first_ts": true, "last_ts": true, "last_active": true, "cluster": true,
	"_nats.ver": true, "server_id": true, "id": true, "timestamp": true, "now": true, "start": true,
	"pause_remaining": true, "active": true,
}

func normalise(key string, v any) any {
	if volatile[key] {
		return "<" + key + ">"
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = normalise(k, x)
		}
		return v
	case []any:
		for i, x := range v {
			v[i] = normalise("", x)
		}
		if key == "sources" { // nats-server shows their states in no order
			slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
		}
		return v
	case string:
		return scrub(v)
	default:
		return v
	}
}

// nameOf is the name of a JSON object; empty without one.
func nameOf(v any) string {
	m, _ := v.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// compare runs the case on a real nats-server and on the gateway and demands equal transcripts.
func compare(t *testing.T, run func(t *testing.T, e endpoint, tr *transcript)) {
	t.Helper()
	compareWith(t, "", run)
}

// maxReplays is how often a case that waits by the clock is played again before a difference counts: one of the servers
// may have been late, and what came too late is late in no replay with more patience.
const maxReplays = 3

// compareWith is compare with a configuration for both.
func compareWith(t *testing.T, conf string, run func(t *testing.T, e endpoint, tr *transcript)) {
	t.Helper()
	for again := 0; ; again++ {
		want, got := transcript{again: again}, transcript{again: again}
		if !playBoth(t, conf, run, &want, &got) {
			return
		}
		differences := diff(want.lines, got.lines)
		if len(differences) == 0 {
			return
		}
		if again == maxReplays || !want.timed && !got.timed {
			t.Error(strings.Join(differences, "\n"))
			return
		}
		t.Logf("played again with more patience, for\n%s", strings.Join(differences, "\n"))
	}
}

// playBoth runs the case on both servers; false if it failed on one by itself.
func playBoth(t *testing.T, conf string, run func(*testing.T, endpoint, *transcript), want, got *transcript) bool {
	t.Helper()
	ok := t.Run("nats-server", func(t *testing.T) {
		s := startOracle(t, func(o *server.Options) {
			if conf != "" { // an empty file is an error
				noErr(t, o.ProcessConfigFile(writeFile(t, "oracle.conf", conf)))
			}
		})
		run(t, endpoint{"nats-server", s.ClientURL(), "http://" + s.MonitorAddr().String()}, want)
	})
	return t.Run("gateway", func(t *testing.T) {
		p := startGateway(t, t.TempDir(), "-c", writeFile(t, "gateway.conf", loose()+conf))
		run(t, endpoint{"gateway", p.URL, p.Monitor}, got)
	}) && ok
}

// writeFile makes a file for the time of the test and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// diff returns the lines in which the two differ.
func diff(want, got []string) (differences []string) {
	if len(want) == 0 {
		return []string{"the case recorded nothing"}
	}
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			differences = append(differences, fmt.Sprintf("line %d differs\nnats-server: %s\ngateway:     %s", i+1, w, g))
		}
	}
	return differences
}

// request sends a raw API request and returns the answer's body.
func request(t *testing.T, nc *nats.Conn, subject, body string) []byte {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 5*time.Second)
	if err != nil {
		return []byte(fmt.Sprintf("%q", strings.TrimPrefix(err.Error(), "nats: ")))
	}
	return m.Data
}
