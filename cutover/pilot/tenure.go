package pilot

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/lease"
)

// hold takes the lease on the servers, before anything is served, and returns an epoch that there was already.
func (p *Pilot) hold(ctx context.Context) (epoch uint64, err error) {
	before, here, err := flip.Standing(p.o.Dir)
	if err != nil {
		return 0, err
	}
	var conn *nats.Conn // of the first account
	if accounts := slices.Sorted(maps.Keys(p.o.Conns)); len(accounts) > 0 {
		conn = p.o.Conns[accounts[0]].NATS()
	}
	epoch = before
	p.lease, err = lease.New(lease.Options{
		Dir: p.o.Dir, Conn: conn, Server: p.o.Server, Logger: p.o.Logger,
		Standing: func() lease.Standing {
			if p.engine == nil {
				return p.standing(before, here)
			}
			return p.standing(p.engine.Standing())
		},
		Raise: func(to uint64) {
			if epoch = max(epoch, to); p.engine != nil {
				p.engine.Raise(to)
			}
		},
	})
	if err != nil {
		return 0, err
	}
	if err := p.lease.Hold(ctx); err != nil {
		return 0, err
	}
	p.o.Relay.Guard(p.lease.Wait)
	return epoch, nil
}

// standing is how far the streams are that the gateway has the say about.
func (p *Pilot) standing(epoch uint64, here []cutover.Scope) lease.Standing {
	st := lease.Standing{Epoch: epoch, Streams: make(map[cutover.Scope]lease.Stream, len(here))}
	for _, s := range here {
		var at lease.Stream
		if c, err := p.o.Local.Stream(s.Account, s.Stream); err == nil {
			at.Created = c.Created()
			at.Last, _ = c.Progress()
		}
		st.Streams[s] = at
	}
	return st
}

// keep renews the lease until ctx ends, or another has it for good.
func (p *Pilot) keep(ctx context.Context) {
	err := p.lease.Keep(ctx)
	if err == nil {
		return
	}
	p.o.Logger.Error("The gateway ends, and nothing passes any more: {error}", slog.Any("error", err))
	if f := p.o.Deposed; f != nil {
		f(fmt.Errorf("the gateway was deposed: %w", err))
	}
}

// leaveTime bounds what a stop says to the servers.
const leaveTime = time.Second

func (p *Pilot) leave() {
	ctx, cancel := context.WithTimeout(p.live, leaveTime)
	defer cancel()
	p.lease.Leave(ctx)
}

// releaseTime bounds GiveBack.
const releaseTime = 2 * time.Second

// GiveBack gives the lease back, so that another gateway need not wait until it has run out. It is to be called behind
// Close, when no client is connected any more. Nothing is given back while a stream or a consumer is served from here:
// another gateway would begin beside what only this one has.
func (p *Pilot) GiveBack(ctx context.Context) {
	if !p.engine.AtRest() {
		p.o.Logger.Info("The lease on the servers is kept: streams are served from what this gateway has stored")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	switch given, err := p.lease.Release(ctx); {
	case err != nil:
		p.o.Logger.Info("The lease on the servers could not be given back, and runs out in {ttl}: {error}",
			slog.Duration("ttl", lease.TTL), slog.Any("error", err))
	case given:
		p.o.Logger.Info("The lease on the servers is given back")
	}
}

// leaseFact is how many gateways take part.
func (p *Pilot) leaseFact(c *collector) {
	id, other, at := p.lease.Seen()
	if at.IsZero() {
		return
	}
	f := gate.Fact{Value: 1, N: 1, At: at, Source: "lease", Detail: id}
	if other != "" {
		f.Value, f.Detail = 2, other //nolint:mnd // the other one
	}
	c.facts[gate.Gateways] = f
}
