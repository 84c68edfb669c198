package pilot

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// What is seen of the servers, of autoscalers and of message ids decides the gates about them.
func TestSurroundingsDecideGates(t *testing.T) {
	now := time.Now()
	scrape := func(agent string, old time.Duration, n uint64) face.Scrape {
		return face.Scrape{Agent: agent, Addr: "10.0.0.1", Page: "/jsz", At: now.Add(-old), Count: n}
	}
	const keda = "Go-http-client/1.1"
	group := func(leader string, current bool) *server.ClusterInfo {
		return &server.ClusterInfo{Leader: leader, Replicas: []*server.PeerInfo{{Name: "n2", Current: current}}}
	}
	healthy := func(c *collector) { c.put(gate.Regressions, 0, "", ""); c.put(gate.Unhealthy, 0, "", "") }
	sick := func(g *server.ClusterInfo) func(*collector) {
		return func(c *collector) {
			healthy(c)
			c.versions("2.12.3", true)
			n, why := unhealthy(g)
			c.put(gate.Unhealthy, float64(n), "STREAM.INFO", why)
		}
	}
	of := func(version string, clustered bool) func(*collector) {
		return func(c *collector) { healthy(c); c.versions(version, clustered) }
	}
	watched := func(kubernetes bool, list ...face.Scrape) func(*collector) {
		return func(c *collector) { c.watchers(list, kubernetes) }
	}
	for name, tc := range map[string]struct {
		gate string
		want gate.State
		tell func(*collector)
	}{
		"an autoscaler asks":               {"G19", gate.Pass, watched(true, scrape(keda, 20*time.Second, 9))},
		"it has stopped":                   {"G19", gate.Fail, watched(true, scrape(keda, 3*time.Minute, 9))},
		"one of two has":                   {"G19", gate.Fail, watched(false, scrape(keda, time.Second, 9), scrape("keda/2.20", time.Hour, 9))},
		"nobody has asked":                 {"G19", gate.Pending, watched(true)},
		"it has only begun":                {"G19", gate.Pending, watched(true, scrape(keda, time.Second, 2))},
		"somebody with curl, and no pods":  {"G19", gate.NotApplicable, watched(false, scrape("curl/8", time.Hour, 9))},
		"yesterday's":                      {"G19", gate.NotApplicable, watched(false, scrape(keda, 25*time.Hour, 9))},
		"a fine server":                    {"G20", gate.Pass, of("2.15.2", true)},
		"one that loses streams":           {"G20", gate.Fail, of("2.10.22", false)},
		"and its next version":             {"G20", gate.Pass, of("2.10.23", false)},
		"a cluster that loses records":     {"G20", gate.Fail, of("2.12.2", true)},
		"the same version alone":           {"G20", gate.Pass, of("2.12.2", false)},
		"a version that is none":           {"G20", gate.Pass, of("dev", true)},
		"nothing is known of the servers":  {"G20", gate.Unknown, func(*collector) {}},
		"a replica that lags":              {"G20", gate.Fail, sick(group("n1", false))},
		"no leader":                        {"G20", gate.Fail, sick(group("", true))},
		"in order":                         {"G20", gate.Pass, sick(group("n1", true))},
		"ids of the whole window":          {"G17", gate.Pass, func(c *collector) { c.dedup(now.Add(-2*time.Minute), 2*time.Minute) }},
		"the window is not over":           {"G17", gate.Pending, func(c *collector) { c.dedup(now.Add(-time.Minute), 2*time.Minute) }},
		"nothing is known of message ids":  {"G17", gate.Unknown, func(*collector) {}},
		"nothing is known of autoscalers":  {"G19", gate.Unknown, func(*collector) {}},
		"configurations differ":            {"G18", gate.Fail, configured(1, time.Hour)},
		"changed lately":                   {"G18", gate.Pending, configured(0, time.Minute)},
		"equal and quiet":                  {"G18", gate.Pass, configured(0, time.Hour)},
		"nothing is known of those either": {"G18", gate.Unknown, func(*collector) {}},
	} {
		c := &collector{facts: gate.Facts{}, now: now}
		tc.tell(c)
		r := gate.Evaluate(c.facts, cutover.Scope{}, gate.Options{Now: now})
		for _, g := range r.Gates {
			if g.ID == tc.gate && g.State != tc.want {
				t.Errorf("%s: %s is %s (%s), want %s", name, g.ID, g.State, g.Reason, tc.want)
			}
		}
	}
	a := server.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: server.FileStorage, Metadata: map[string]string{"_nats.level": "1"}}
	b := server.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: server.FileStorage}
	if !sameConfig(a, b) {
		t.Error("what the servers add makes a difference")
	}
	if b.MaxMsgs = 7; sameConfig(a, b) {
		t.Error("other limits are the same")
	}
}

func configured(differences float64, quiet time.Duration) func(*collector) {
	return func(c *collector) {
		c.put(gate.ConfigDiffers, differences, "STREAM.INFO", "")
		c.put(gate.ConfigQuiet, quiet.Seconds(), "STREAM.INFO", "")
	}
}
