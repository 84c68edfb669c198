package pilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/lease"
	"github.com/noetl/ehdb-gateway/cutover/parity"
	"github.com/noetl/ehdb-gateway/cutover/window"
)

// Gates implements face.Engine.
func (p *Pilot) Gates(ctx context.Context, scope cutover.Scope, purpose gate.Purpose) (gate.Report, error) {
	return p.evaluate(ctx, scope, &question{purpose: purpose})
}

// question is what the gates are asked.
type question struct {
	purpose   gate.Purpose
	forced    map[string]string // gates that are done without, with reasons
	expect    string            // digest of the plan that was approved
	consumer  string            // the one that it is about; empty: all of the stream
	noReverse string            // why no way back is wanted; empty: one is
	observe   time.Duration     // for how long the flip would be observed
	observed  *observing        // the flip under observation that it is about; nil: none
	// by and the following are of whoever gives the way back up.
	by, approver, credentials string
	approved                  *time.Time // when the approver said so; nil: it is a name
}

// evaluate evaluates the gates.
func (p *Pilot) evaluate(ctx context.Context, scope cutover.Scope, q *question) (gate.Report, error) {
	facts, err := p.facts(ctx, scope, q)
	if err != nil {
		return gate.Report{}, err
	}
	in := gate.All{facts}
	if p.o.Facts != nil {
		in = append(in, p.o.Facts)
	}
	return gate.Evaluate(in, scope, gate.Options{
		Profile: p.o.Profile, Purpose: q.purpose, Now: time.Now(), Forced: q.forced, NoWayBack: q.noReverse,
	}), nil
}

// collector gathers facts.
type collector struct {
	facts gate.Facts
	now   time.Time
}

func (c *collector) put(name string, v float64, source, detail string) {
	c.facts[name] = gate.Fact{Value: v, N: 1, At: c.now, Source: source, Detail: detail}
}

func (c *collector) none(name, why string) {
	c.facts[name] = gate.Fact{At: c.now, Source: "configuration", NotApplicable: why}
}

// facts is what is known of a stream now. What is not measured is not in it.
func (p *Pilot) facts(ctx context.Context, scope cutover.Scope, q *question) (gate.Facts, error) {
	v, err := p.engine.View(scope)
	if err != nil {
		return nil, unknown(err)
	}
	if v.OneWay && q.noReverse == "" {
		q.noReverse = "it was flipped with --no-reverse-shadow"
	}
	c := &collector{facts: gate.Facts{}, now: time.Now()}
	if st, err := p.parity.Status(scope); err == nil {
		p.mu.Lock()
		since := p.start
		if s := p.seen[scope]; s != nil {
			since = s.since
		}
		p.mu.Unlock()
		if q.consumer != "" {
			st.Consumers = slices.DeleteFunc(slices.Clone(st.Consumers), func(r parity.ConsumerReport) bool {
				return r.Consumer != q.consumer
			})
		}
		cmp := gate.Comparison{
			Status: st, Controls: p.parity.SelfTest(), Since: since, FenceBudget: flip.DefaultFence, Now: c.now,
			Waivers: p.o.Waivers,
		}
		c.facts = cmp.Facts()
		if v.Phase == flip.PhaseShadow {
			c.holes(v, st.Unacknowledged, st.At)
		}
	}
	p.strayFact(c, scope)
	p.copyFacts(c, v)
	p.serverFacts(ctx, c, scope, v)
	p.ownFacts(ctx, c, scope, v, q)
	if q.noReverse != "" {
		c.put(gate.ReverseProven, 0, "flip", q.noReverse+": a rollback loses what is published here")
		c.none(gate.ReverseLag, "the servers are not kept equal: "+q.noReverse)
	}
	p.bypass(ctx, c, scope.Account)
	p.leaseFact(c)
	p.headroom(ctx, c, scope, v)
	p.drillFacts(c)
	p.probeFacts(c, scope)
	p.bakeFacts(c, scope, v, q)
	if q.observed != nil {
		q.observed.facts(p, c)
	}
	if st, err := p.engine.Status(scope); err == nil && st.Leftover != "" {
		for _, name := range []string{gate.Diverged, gate.DigestEqual} {
			if f, ok := c.facts[name]; ok {
				f.Detail = strings.TrimPrefix(f.Detail+"; "+st.Leftover, "; ")
				c.facts[name] = f
			}
		}
	}
	return c.facts, nil
}

// holes are records that no publish through the gateway accounts for.
func (c *collector) holes(v *flip.View, unacknowledged uint64, at time.Time) {
	unasked := v.Scope.Counts().Unasked + v.Scope.Counts().Unanswered
	n := unacknowledged - min(unacknowledged, unasked)
	c.facts[gate.BypassHoles] = gate.Fact{
		Value: float64(n), N: unacknowledged, At: at, Source: "ledger",
		Detail: fmt.Sprintf("%d records without an acknowledgement, %d publishes through the gateway asked for none",
			unacknowledged, unasked),
	}
}

// copyFacts are about the queue between the servers and the copy.
func (p *Pilot) copyFacts(c *collector, v *flip.View) {
	copier, ok := v.Capture.(*capture.Capturer)
	if !ok {
		return
	}
	st := copier.Status()
	n := st.Counts
	in, out := n.Enqueued+n.EnqueuedAfterWait, n.Drained+n.Pending+n.Returned+n.ShutdownAbandoned
	c.put(gate.QueueConserved, gate.Yes(in == out), "capture", fmt.Sprintf("%d in, %d out or waiting", in, out))
	c.none(gate.QueueDropped, "no rung of the queue drops: what it does not take the reader writes itself")
	c.put(gate.QueueInline, float64(n.QueueFullInline+n.QueueClosedInline), "capture", "")
}

// serverFacts are what the servers say.
func (p *Pilot) serverFacts(ctx context.Context, c *collector, scope cutover.Scope, v *flip.View) {
	info, err := v.Upstream.Info(ctx)
	if err != nil {
		return
	}
	own := v.Copy.Config()
	differs := 0.0
	if !sameConfig(own, info.Config) {
		differs = 1
	}
	c.put(gate.ConfigDiffers, differs, "STREAM.INFO", "")
	p.mu.Lock()
	s := p.seen[scope]
	if s != nil {
		if doc, err := json.Marshal(info.Config); err == nil && s.config != string(doc) {
			if s.config != "" {
				s.changed = c.now
			}
			s.config = string(doc)
		}
		c.put(gate.ConfigQuiet, c.now.Sub(s.changed).Seconds(), "STREAM.INFO", "")
		c.dedup(s.since, info.Config.Duplicates)
	}
	p.mu.Unlock()
	n, why := unhealthy(info.Cluster)
	c.put(gate.Unhealthy, float64(n), "STREAM.INFO", why)
	c.versions(p.o.Conns[scope.Account].NATS().ConnectedServerVersion(), clustered(info.Cluster))
	if !info.TimeStamp.IsZero() {
		c.put(gate.ClockSkew, time.Since(info.TimeStamp).Abs().Seconds(), "STREAM.INFO", "with the time of the request")
	}
	if !clustered(info.Cluster) {
		c.none(gate.DrillStepdown, singleServer)
	}
	refused := flip.Unsupported(&info.Config)
	c.put(gate.Unsupported, float64(len(refused)), "STREAM.INFO", strings.Join(refused, "; "))
}

// unhealthy counts the parts of a stream's group that are not in order, and says what one of them lacks. A stream of a
// single server has no group.
func unhealthy(group *server.ClusterInfo) (n int, why string) {
	if group == nil {
		return 0, ""
	}
	if group.Leader == "" {
		n, why = 1, "no leader"
	}
	for _, r := range group.Replicas {
		if !r.Current || r.Offline {
			n, why = n+1, r.Name+" is not current"
		}
	}
	return n, why
}

func sameConfig(a, b server.StreamConfig) bool {
	a.Metadata, b.Metadata = nil, nil // the servers add their version
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// ownFacts are what the gateway knows of itself.
func (p *Pilot) ownFacts(
	ctx context.Context, c *collector, scope cutover.Scope, v *flip.View, q *question,
) {
	if v.Config.Storage == server.MemoryStorage {
		c.none(gate.AckAfterSync, "the stream is in memory, on both sides")
	}
	c.none(gate.FailureDomains, "one copy: there are no replicas that could share a domain")
	c.none(gate.UnreplicatedAge, "one copy: nothing is replicated")
	c.none(gate.FenceMemory, "none is needed: what is held is not read, and stays in the clients' sockets")
	c.none(gate.ProxyRequired, "the servers do not tell; their connections are looked at instead")
	var scrapes []face.Scrape
	if p.o.Scrapes != nil {
		scrapes = p.o.Scrapes()
	}
	c.watchers(scrapes, os.Getenv("KUBERNETES_SERVICE_HOST") != "")
	p.autoscalers(ctx, c)
	c.window(p.o.Window)
	if q.expect == "" {
		c.none(gate.PlanDigest, "no plan was approved: give its digest with --expect")
	} else if plan, err := p.engine.PlanFlip(ctx, scope, p.planned(q.noReverse != "", q.observe)); err == nil {
		c.put(gate.PlanDigest, gate.Yes(plan.Digest == q.expect), "plan", plan.Digest)
	}
	p.mu.Lock()
	proof := p.proof
	p.mu.Unlock()
	if !proof.At.IsZero() {
		c.facts[gate.ReverseProven] = proof
		c.facts[gate.MayPublish] = proof
	}
}

// window is whether changes are allowed now.
func (c *collector) window(list window.Windows) {
	if len(list) == 0 {
		c.none(gate.ChangeWindow, "no change window is configured (bus.change_window, or the hook on-before-flip)")
		return
	}
	open, next := list.Open(c.now), list.Next(c.now)
	detail := "it is open"
	if !open {
		detail = "it is closed"
	}
	if !next.IsZero() {
		detail += " until " + next.UTC().Format("Mon 15:04") + " UTC"
	}
	c.put(gate.ChangeWindow, gate.Yes(open), "bus.change_window", detail+": "+list.String())
}

// headroom is the servers' free storage over what a stream holds: what the way back may need.
func (p *Pilot) headroom(ctx context.Context, c *collector, scope cutover.Scope, v *flip.View) {
	js, err := jetstream.New(p.o.Conns[scope.Account].NATS())
	if err != nil {
		return
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return
	}
	limit, used := info.Limits.MaxStore, info.Store
	if v.Config.Storage == server.MemoryStorage {
		limit, used = info.Limits.MaxMemory, info.Memory
	}
	if limit < 0 {
		c.none(gate.Headroom, "the account's storage has no limit; watch the servers' disks")
		return
	}
	st, err := v.Copy.State(ctx, false)
	if err != nil {
		return
	}
	free := float64(limit) - float64(used)
	c.put(gate.Headroom, free/float64(max(st.Bytes, 1)), "$JS.API.INFO", "")
}

// proveEvery is how often the way back is tried.
const proveEvery = time.Hour

// prove tries the way back on a stream of its own: publishes at given sequences, a hole, and what a wrong sequence
// gets.
func (p *Pilot) prove(ctx context.Context) {
	p.mu.Lock()
	due := p.proof.At.IsZero() || p.proof.Value != 1 || time.Since(p.proof.At) > proveEvery
	p.mu.Unlock()
	if !due {
		return
	}
	f := gate.Fact{
		Value: 1, N: uint64(len(p.o.Conns)), Source: "scratch stream",
		Detail: "published, refused and removed as it should be",
	}
	for account, c := range p.o.Conns {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := tryBack(ctx, c.NATS(), p.o.Server)
		cancel()
		if err != nil {
			f.Value, f.Detail = 0, account+": "+err.Error()
			break
		}
	}
	f.At = time.Now()
	p.mu.Lock()
	p.proof = f
	p.mu.Unlock()
}

// scratchPrefix begins the names of streams that the gateway makes for itself on the servers.
const scratchPrefix = "EHDB_SCRATCH_"

// own tells the gateway's own streams.
func own(stream string) bool {
	return strings.HasPrefix(stream, scratchPrefix) || stream == "KV_"+lease.Bucket || stream == "KV_"+lease.ClaimBucket
}

var errChain = errors.New("a publish with a wrong expected sequence was taken")

func tryBack(ctx context.Context, nc *nats.Conn, server string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	name := scratchPrefix + clean(server)
	subject := "_EHDB.scratch." + clean(server)
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.MemoryStorage,
		Description: "made by ehdb-gateway to try the way back; it can be deleted",
	})
	if err != nil {
		return err
	}
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = js.DeleteStream(gone, name) // the next attempt uses it
	}()
	if err := s.Purge(ctx); err != nil {
		return err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	last := info.State.LastSeq
	for seq := last + 1; seq <= last+3; seq++ {
		if _, err := js.Publish(ctx, subject, []byte("x"), jetstream.WithExpectLastSequence(seq-1)); err != nil {
			return err
		}
	}
	if _, err := js.Publish(ctx, subject, []byte("x"), jetstream.WithExpectLastSequence(last)); err == nil {
		return errChain
	}
	return s.DeleteMsg(ctx, last+2)
}

// clean is a name as a token of a subject.
func clean(name string) string {
	b := []byte(name)
	for i, ch := range b {
		if !slices.Contains([]byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"), ch) {
			b[i] = '-'
		}
	}
	return string(b)
}
