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
type transcript struct{ lines []string }

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

// compareWith is compare with a configuration for both.
func compareWith(t *testing.T, conf string, run func(t *testing.T, e endpoint, tr *transcript)) {
	t.Helper()
	var want, got transcript
	ok := t.Run("nats-server", func(t *testing.T) {
		s := startOracle(t, func(o *server.Options) {
			if conf != "" { // an empty file is an error
				noErr(t, o.ProcessConfigFile(writeFile(t, "oracle.conf", conf)))
			}
		})
		run(t, endpoint{"nats-server", s.ClientURL(), "http://" + s.MonitorAddr().String()}, &want)
	})
	ok = t.Run("gateway", func(t *testing.T) {
		p := startGateway(t, t.TempDir(), "-c", writeFile(t, "gateway.conf", loose()+conf))
		run(t, endpoint{"gateway", p.URL, p.Monitor}, &got)
	}) && ok
	if ok {
		diff(t, want.lines, got.lines)
	}
}

// writeFile makes a file for the time of the test and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// diff reports the lines in which the two differ.
func diff(t *testing.T, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("line %d differs\nnats-server: %s\ngateway:     %s", i+1, w, g)
		}
	}
	if len(want) == 0 {
		t.Error("the case recorded nothing")
	}
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
