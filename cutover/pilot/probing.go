package pilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/probe"
)

// How often the sides are asked, and how many measurements are made at once.
const (
	probeEvery   = 2 * time.Second
	answersEvery = 20 * time.Second // of streams of one kind
	latencyEvery = 5 * time.Second  // until there are enough, then
	latencyRare  = time.Minute
	latencyBatch = 25
	latencyPause = 20 * time.Millisecond
	latencyReady = 1000
	// latencyObserved is how many while a flip is observed: enough of them come together in its time.
	latencyObserved = 100
)

// probes are the questions to both sides, and what came of them.
type probes struct {
	mu sync.Mutex
	// The following are guarded by mu.
	own     map[string]*probe.Own     // by account
	latency map[string]*probe.Latency // by account
	timed   map[string]time.Time      // when latency was measured last, by account
	answers map[string]*probe.Answers // by kind of stream
	kinds   map[cutover.Scope]string
	trips   map[string]*probe.Trips // by account
	tripped time.Time               // when they were measured last
	used    map[string][2]float64   // how busy the servers and the gateway were, by account
	said    string
}

func newProbes() probes {
	return probes{
		own: make(map[string]*probe.Own), latency: make(map[string]*probe.Latency), timed: make(map[string]time.Time),
		answers: make(map[string]*probe.Answers), kinds: make(map[cutover.Scope]string),
		trips: make(map[string]*probe.Trips), used: make(map[string][2]float64),
	}
}

// ask asks both sides the same, until ctx ends.
func (p *Pilot) ask(ctx context.Context) {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	defer p.probes.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !p.reached() {
			continue // which is told by others
		}
		err := errors.Join(p.askAnswers(ctx), p.askLatency(ctx), p.askOverhead(ctx))
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			p.probes.said = ""
		} else if text := err.Error(); text != p.probes.said {
			p.probes.said = text
			p.o.Logger.Warn("The two sides could not be compared by asking them: {error}", slog.Any("error", err))
		}
	}
}

// reached reports whether the gateway has a connection of its own to the servers.
func (p *Pilot) reached() bool {
	for _, c := range p.o.Conns {
		if c.Status().Connected {
			return true
		}
	}
	return false
}

func (q *probes) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range q.own {
		o.Close()
	}
}

// sides are the servers and the gateway as an account sees them.
func (p *Pilot) sides(account string) (there, here probe.Side, err error) {
	p.probes.mu.Lock()
	defer p.probes.mu.Unlock()
	own := p.probes.own[account]
	if own == nil {
		if own, err = probe.NewOwn(p.o.Bus, account); err != nil {
			return nil, nil, err
		}
		p.probes.own[account] = own
	}
	return probe.Servers(p.o.Conns[account].NATS()), own, nil
}

// askAnswers compares what the API answers for streams of each kind that is under watch.
func (p *Pilot) askAnswers(ctx context.Context) error {
	for _, scope := range p.engine.Streams() {
		v, err := p.engine.View(scope)
		if err != nil || v.Phase != flip.PhaseShadow || p.o.Conns[scope.Account] == nil {
			continue
		}
		infos, err := v.Upstream.Consumers(ctx)
		if err != nil {
			return err
		}
		consumers := make([]server.ConsumerConfig, 0, len(infos))
		for _, i := range infos {
			consumers = append(consumers, *i.Config)
		}
		id := clean(p.o.Server)
		t := probe.NewTwin(v.Config, consumers, scratchPrefix+id+"_TWIN", "_EHDB.twin."+id)
		kind := scope.Account + " " + t.Key()
		p.probes.mu.Lock()
		p.probes.kinds[scope] = kind
		last := p.probes.answers[kind]
		p.probes.mu.Unlock()
		if last != nil && time.Since(last.At) < answersEvery {
			continue
		}
		there, here, err := p.sides(scope.Account)
		if err != nil {
			return err
		}
		got, err := t.Compare(ctx, there, here, p.parity.API())
		if err != nil {
			return err
		}
		p.probes.mu.Lock()
		p.probes.answers[kind] = got
		p.probes.mu.Unlock()
	}
	return nil
}

// askLatency measures both sides, while nothing is saturated.
func (p *Pilot) askLatency(ctx context.Context) error {
	for account := range p.o.Conns {
		p.probes.mu.Lock()
		l := p.probes.latency[account]
		if l == nil {
			id := clean(p.o.Server)
			l = probe.NewLatency(scratchPrefix+id+"_LATENCY", "_EHDB.latency."+id+".probe")
			p.probes.latency[account] = l
		}
		since := time.Since(p.probes.timed[account])
		p.probes.mu.Unlock()
		_, here := l.Snapshot()
		batch, often := latencyBatch, here.Ack.N() < latencyReady
		if p.observes(account) {
			batch, often = latencyObserved, true
		}
		if since < latencyEvery || !often && since < latencyRare {
			continue
		}
		if p.waits(cutover.Scope{}) != "" {
			l.Skip()
			continue
		}
		there, own, err := p.sides(account)
		if err != nil {
			return err
		}
		used, err := p.utilised(ctx, func() error { return l.Measure(ctx, there, own, batch, latencyPause) })
		p.probes.mu.Lock()
		p.probes.timed[account], p.probes.used[account] = time.Now(), used
		p.probes.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// probeFacts are what asking both sides came to.
func (p *Pilot) probeFacts(c *collector, scope cutover.Scope) {
	p.probes.mu.Lock()
	got, l := p.probes.answers[p.probes.kinds[scope]], p.probes.latency[scope.Account]
	p.probes.mu.Unlock()
	if got != nil {
		answersFact(c, got)
	}
	const day = 24 * time.Hour
	used := p.o.Relay.Unknown(c.now.Add(-day))
	c.put(gate.APIUnknown, float64(len(used)), "relay", strings.Join(used, ", "))
	if l == nil {
		return
	}
	there, here := l.Snapshot()
	latencyFacts(c, &there, &here)
}

// answersFact is about the last comparison of answers.
func answersFact(c *collector, got *probe.Answers) {
	n := got.Equal + got.Differ
	var detail strings.Builder
	fmt.Fprintf(&detail, "%d of %d answers alike, %d differences ignored", got.Equal, n, got.Ignored)
	for i, v := range got.Differences {
		const most = 3
		if i == most {
			detail.WriteString("; ...")
			break
		}
		d := v.Differences[0]
		fmt.Fprintf(&detail, "; %s %s: %q, here %q", v.Subject, d.Path, d.NATS, d.EHDB)
	}
	c.facts[gate.APIParity] = gate.Fact{
		Value: float64(got.Equal) / float64(max(n, 1)), N: uint64(max(n, 0)), //nolint:gosec // not negative
		At: got.At, Source: "twin streams", Detail: detail.String(),
	}
}

// latencyFacts are how long this side takes over how long the servers take.
func latencyFacts(c *collector, there, here *probe.Times) {
	put := func(name string, q float64, a, b *probe.Ring) {
		n := min(a.N(), b.N())
		x, y := a.Quantiles(q)[0], b.Quantiles(q)[0]
		if n == 0 || x <= 0 {
			return
		}
		c.facts[name] = gate.Fact{
			Value: float64(y) / float64(x), N: n, At: here.At, Source: "scratch streams",
			Detail: fmt.Sprintf("NATS %v, here %v", x.Round(time.Microsecond), y.Round(time.Microsecond)),
		}
	}
	const median, tail = 0.5, 0.99
	put(gate.PublishP50, median, &there.Ack, &here.Ack)
	put(gate.PublishP99, tail, &there.Ack, &here.Ack)
	put(gate.DeliverP99, tail, &there.Deliver, &here.Deliver)
}

// latencies are what was measured, as it is shown.
func (p *Pilot) latencies(account string) []face.Latency {
	p.probes.mu.Lock()
	l, used := p.probes.latency[account], p.probes.used[account]
	p.probes.mu.Unlock()
	out := []face.Latency{}
	if l == nil {
		return out
	}
	there, here := l.Snapshot()
	for _, k := range []struct {
		kind, side string
		of         *probe.Ring
		used       float64
	}{
		{"publish_ack", "nats", &there.Ack, used[0]},
		{"publish_ack", "ehdb", &here.Ack, used[1]},
		{"deliver", "nats", &there.Deliver, used[0]},
		{"deliver", "ehdb", &here.Deliver, used[1]},
	} {
		q := k.of.Quantiles(0.5, 0.99, 0.999) //nolint:mnd // as the fields say
		if k.of.N() > 0 {
			out = append(out, face.Latency{
				Kind: k.kind, Side: k.side, P50: q[0].Seconds(), P99: q[1].Seconds(), P999: q[2].Seconds(), N: k.of.N(),
				Utilisation: k.used,
			})
		}
	}
	if l, ok := p.probes.overhead(account); ok {
		out = append(out, l)
	}
	return out
}
