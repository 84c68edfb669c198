package pilot

import (
	"context"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/probe"
)

// What the gateway adds is measured through its own client port, with the login that it has itself; and beside every
// measurement of latency, how busy both sides were.

const (
	overheadFirst = time.Minute // behind the start, and between two measurements
	overheadEvery = 5 * time.Minute
	overheadTrips = 40
	overheadPause = 5 * time.Millisecond
	overheadTime  = 10 * time.Second // bounds one measurement
)

// askOverhead measures what the gateway adds, when it is time and nothing is being moved.
func (p *Pilot) askOverhead(ctx context.Context) error {
	p.probes.mu.Lock()
	due := time.Since(p.probes.tripped) >= overheadEvery && time.Since(p.start) >= overheadFirst
	p.probes.mu.Unlock()
	if !due || p.o.Front == nil || p.moving() {
		return nil
	}
	return p.measureOverhead(ctx)
}

// moving reports whether a stream is being moved: its clients are held, and this one would be.
func (p *Pilot) moving() bool {
	for _, scope := range p.engine.Streams() {
		v, err := p.engine.View(scope)
		if err == nil && (v.Phase == flip.PhaseFlipping || v.Phase == flip.PhaseRollingBack) {
			return true
		}
	}
	return false
}

// measureOverhead measures it, in each account.
func (p *Pilot) measureOverhead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, overheadTime)
	defer cancel()
	p.probes.mu.Lock()
	p.probes.tripped = time.Now()
	p.probes.mu.Unlock()
	for account, c := range p.o.Conns {
		if !c.Status().Connected {
			continue
		}
		through, err := c.Through(p.o.Front())
		if err != nil {
			return fmt.Errorf("what the gateway adds is not measured: %w", err)
		}
		trips, err := probe.RoundTrips(ctx, c.NATS(), through, overheadTrips, overheadPause)
		through.Close()
		if err != nil {
			return fmt.Errorf("what the gateway adds is not measured: %w", err)
		}
		p.probes.mu.Lock()
		p.probes.trips[account] = trips
		p.probes.mu.Unlock()
	}
	return nil
}

// overhead is what the gateway adds in an account, as it is shown.
func (q *probes) overhead(account string) (face.Latency, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.trips[account]
	if t == nil {
		return face.Latency{}, false
	}
	v := t.Overhead(0.5, 0.99, 0.999) //nolint:mnd // as the fields say
	return face.Latency{
		Kind: "gateway", Side: "overhead", P50: v[0].Seconds(), P99: v[1].Seconds(), P999: v[2].Seconds(),
		N: t.Through.N(), Utilisation: q.used[account][1],
	}, true
}

// utilised is how busy the servers and the gateway were while fn ran, each from 0 to 1: the busiest server by its CPU,
// and the gateway by its CPU or the syncs of its log. What is not known is 0.
func (p *Pilot) utilised(ctx context.Context, fn func() error) (used [2]float64, err error) {
	since := time.Now()
	var before Use
	if p.o.Used != nil {
		before = p.o.Used()
	}
	err = fn()
	if took := time.Since(since).Seconds(); p.o.Used != nil && took > 0 {
		now := p.o.Used()
		cpu := (now.CPU - before.CPU).Seconds() / took / float64(max(now.Cores, 1))
		used[1] = min(max(cpu, (now.Syncing-before.Syncing).Seconds()/took), 1)
	}
	used[0] = p.serversBusy(ctx)
	return used, err
}

// Use is what a process has used since its start.
type Use struct {
	CPU     time.Duration // of all cores
	Syncing time.Duration // in which a shard of the log synced, on average
	Cores   int
}

// serversBusy is how busy the busiest server is, as their monitoring pages say; 0: it is not known.
func (p *Pilot) serversBusy(ctx context.Context) (most float64) {
	ctx, cancel := context.WithTimeout(ctx, bypassTime)
	defer cancel()
	for _, at := range p.o.Monitor {
		var z struct { // that of a server has fields that do not read what they write
			CPU      float64 `json:"cpu"`
			Cores    int     `json:"cores"`
			MaxProcs int     `json:"gomaxprocs"`
		}
		if page(ctx, at.JoinPath("varz"), &z) != nil {
			continue
		}
		cores := z.MaxProcs
		if cores <= 0 {
			cores = max(z.Cores, 1)
		}
		const percent = 100
		most = max(most, z.CPU/percent/float64(cores))
	}
	return min(most, 1)
}
