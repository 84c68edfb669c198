package pilot

import (
	"fmt"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// dedup is whether the message ids of the whole window are known: of those that passed since the stream is under watch.
func (c *collector) dedup(since time.Time, window time.Duration) {
	c.put(gate.DedupMissing, 0, "ledger", "message ids are known since "+since.UTC().Format(time.RFC3339))
	if left := since.Add(window).Sub(c.now); left > 0 {
		f := c.facts[gate.DedupMissing]
		f.Value = 1
		f.Lapsed = fmt.Sprintf("%s; the deduplication window is %v: %v to go", f.Detail, window,
			left.Round(time.Second))
		c.facts[gate.DedupMissing] = f
	}
}

// How soon an autoscaler that asked for figures has to ask again (twice what KEDA does when nothing is said), how often
// it asks to be one, and when it is forgotten.
const (
	watchEvery  = time.Minute
	watchTimes  = 3
	watchForget = 24 * time.Hour
)

// watchers is whether the autoscalers that have asked for figures of consumers still do: one that has stopped is
// paused, or asks somebody else.
func (c *collector) watchers(scrapes []face.Scrape, kubernetes bool) {
	var asking, gone []string
	for i := range scrapes {
		s := &scrapes[i]
		old := c.now.Sub(s.At)
		if !isScaler(s.Agent) || s.Count < watchTimes || old > watchForget {
			continue
		}
		who := s.Agent + " from " + s.Addr
		if asking = append(asking, who); old > watchEvery {
			gone = append(gone, fmt.Sprintf("%s, %v ago", who, old.Round(time.Second)))
		}
	}
	switch {
	case len(asking) > 0:
		c.put(gate.Unwatched, float64(len(gone)), "scrapes", strings.Join(gone, "; "))
		f := c.facts[gate.Unwatched]
		f.N = uint64(len(asking))
		c.facts[gate.Unwatched] = f
	case kubernetes:
		c.put(gate.Unwatched, 0, "scrapes", "")
		f := c.facts[gate.Unwatched]
		f.Lapsed = "no autoscaler has asked for figures of consumers yet (ehdbctl keda check)"
		c.facts[gate.Unwatched] = f
	default:
		c.none(gate.Unwatched, "not in Kubernetes, and no autoscaler asks for figures of consumers")
	}
}

// isScaler tells the programs that ask as KEDA does from people with a browser and from Prometheus.
func isScaler(agent string) bool {
	a := strings.ToLower(agent)
	return strings.HasPrefix(a, "go-http-client") || strings.Contains(a, "keda")
}

// issue is a defect of some versions of nats-server that loses what it acknowledged.
type issue struct {
	from, fixed version // affected are those from the one and before the other
	clusters    bool    // it takes a cluster
	what        string
}

type version [3]int

func (v version) before(o version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// issues are the known ones, by nats-server's own issue numbers.
var issues = []issue{
	{version{2, 10, 20}, version{2, 10, 23}, false, "nats-server #6888: kills can make a whole stream vanish"},
	{
		version{0, 0, 0},
		version{2, 12, 3},
		true,
		"nats-server #7545: changes of peers and partitions can lose what was acknowledged",
	},
}

// versions is which known defects the servers' version has.
//
//nolint:revive // inCluster is what the servers say
func (c *collector) versions(name string, inCluster bool) {
	var v version
	if n, err := fmt.Sscanf(name, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil || n != len(v) {
		c.none(gate.KnownIssues, fmt.Sprintf("%q is no version of nats-server", name))
		return
	}
	var has []string
	for _, i := range issues {
		if !v.before(i.from) && v.before(i.fixed) && (inCluster || !i.clusters) {
			has = append(has, i.what)
		}
	}
	c.put(gate.KnownIssues, float64(len(has)), "INFO", strings.Join(append([]string{"version " + name}, has...), "; "))
}
