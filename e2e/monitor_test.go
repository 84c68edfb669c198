package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// answer is one answer of a monitoring port.
type answer struct {
	status string
	header http.Header
	body   []byte
}

func getPage(t *testing.T, url string) answer {
	t.Helper()
	resp, err := http.Get(url)
	noErr(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	noErr(t, err)
	return answer{resp.Status, resp.Header, body}
}

// Fields of monitoring pages whose values differ between any two servers or moments: only their types are compared.
var undetermined = map[string]bool{
	"cid": true, "server_id": true, "id": true, "now": true, "start": true, "stop": true, "uptime": true, "idle": true, "rtt": true,
	"last_activity": true, "pending_bytes": true, "cpu": true, "mem": true, "cores": true, "gomaxprocs": true, "port": true, "http_port": true,
	"config_load_time": true, "config_digest": true, "git_commit": true, "store_dir": true, "max_memory": true,
	"max_storage": true, "created": true, "ts": true, "last_ts": true, "first_ts": true, "last_active": true, "update_time": true,
	"num_inserts": true, "num_removes": true, "num_matches": true, "num_cache": true, "cache_hit_rate": true,
	"max_fanout": true, "avg_fanout": true, "active": true, "slow_consumers_ts": true,
	"seq": true, "time": true, "timestamp": true, "service": true, "total_ns": true, "system": true,
}

// facts are the leaves of a JSON document as path=value, in which list elements are numbered.
func facts(t *testing.T, body []byte) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		out[fmt.Sprintf("text %q", body)] = true
		return out
	}
	var walk func(path, key string, v any)
	walk = func(path, key string, v any) {
		switch v := v.(type) {
		case map[string]any:
			out[path+" {}"] = true
			for k, e := range v {
				walk(path+"."+k, k, e)
			}
		case []any:
			out[fmt.Sprintf("%s [%d]", path, len(v))] = true
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), key, e)
			}
		default:
			if undetermined[key] {
				out[fmt.Sprintf("%s is a %T", path, v)] = true
				return
			}
			out[fmt.Sprintf("%s=%v", path, v)] = true
		}
	}
	walk("", "", normalLists("", doc))
	return out
}

// normalLists puts the lists in which nats-server has no order into one, and takes out subscriptions that are not clients'.
func normalLists(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = normalLists(k, e)
		}
	case []any:
		for i, e := range v {
			v[i] = normalLists("", e)
		}
		v = slices.DeleteFunc(v, func(e any) bool { return strings.Contains(nameIn(e), " $JS.API.> ") })
		if unordered[strings.TrimSuffix(key, "_detail")] {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(nameIn(a), nameIn(b)) })
		}
		return v
	case string:
		return scrub(v)
	}
	return v
}

// unordered are the lists without an order.
var unordered = map[string]bool{
	"subscriptions_list": true, "accounts": true, "account_statz": true, "account_details": true, "stream": true,
	"consumer": true, "imports": true, "exports": true, "w": true, "allow": true, "deny": true,
	"events": true,
}

// nameIn is what a list's element is sorted by.
func nameIn(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var name string
	for _, key := range []string{"name", "acc", "local_subject", "subject", "account", "cid", "type", "to", "sub", "stream"} {
		name += fmt.Sprint(m[key], " ")
	}
	return name
}

// ownWay matches what the gateway does in its own way, everywhere: the log is always synced and may be compressed, its
// subscriptions within are others, a consumer names its leader, no consumer is needed to copy a stream of the same
// account, the API of JetStream is no import, and inboxes have names of their own.
const ownWay = `compress_ok|sync_always|subscriptions=\d|num_subscriptions=|consumer_detail\[\d\]\.cluster|api\.total=|js_raft_delete_range`

// onlyIn are the facts of a that b does not have, but for those that expected matches.
func onlyIn(a, b map[string]bool, expected *regexp.Regexp) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a)), func(f string) bool {
		return b[f] || expected != nil && expected.MatchString(f)
	})
}

// comparePages asks a real nats-server and the gateway for pages, after the same was done to both, and demands equal answers.
func comparePages(t *testing.T, conf string, populate func(t *testing.T, e endpoint), pages string, expected string) {
	t.Helper()
	s := startOracle(t, func(o *server.Options) {
		noErr(t, o.ProcessConfigFile(writeFile(t, "oracle.conf", conf)))
	})
	p := startGateway(t, t.TempDir(), "-c", writeFile(t, "gateway.conf", loose()+conf))
	oracle := endpoint{"nats-server", s.ClientURL(), "http://" + s.MonitorAddr().String()}
	gateway := endpoint{"gateway", p.URL, p.Monitor}
	populate(t, oracle)
	populate(t, gateway)
	var differs *regexp.Regexp
	time.Sleep(300 * time.Millisecond)
	differs = regexp.MustCompile(cmp.Or(expected, "^$") + "|" + ownWay)
	for line := range strings.FieldsSeq(pages) {
		want, got := getPage(t, oracle.Monitor+line), getPage(t, gateway.Monitor+line)
		if want.status != got.status {
			t.Errorf("%s: status %s, nats-server's is %s\n%s\n%s", line, got.status, want.status, got.body, want.body)
			continue
		}
		for _, h := range []string{"Content-Type", "Access-Control-Allow-Origin"} {
			if g, w := got.header.Get(h), want.header.Get(h); g != w {
				t.Errorf("%s: %s is %q, nats-server's %q", line, h, g, w)
			}
		}
		theirs, ours := facts(t, want.body), facts(t, got.body)
		if lacks := onlyIn(theirs, ours, differs); len(lacks) > 0 {
			t.Errorf("%s lacks\n\t%s", line, strings.Join(lacks, "\n\t"))
		}
		if adds := onlyIn(ours, theirs, differs); len(adds) > 0 {
			t.Errorf("%s adds\n\t%s", line, strings.Join(adds, "\n\t"))
		}
	}
}
