package pilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// What the consumers of a stream that is served from here say of themselves, and what has reached clients.

// consumersHere asks the gateway's own JetStream about the consumers of an observed stream, as a client would, and sets
// what is stored against what they have delivered since it is observed. The error is that they were not listed.
func (p *Pilot) consumersHere(ctx context.Context, w *observing, v *flip.View) ([]*server.ConsumerInfo, error) {
	known, err := p.listConsumers(ctx, w.scope)
	if err != nil {
		return nil, err
	}
	for _, i := range known { // from here on what they deliver is noted, and nothing is said of it yet
		p.delivered.Watch(w.scope, i.Name, parity.NotYet)
	}
	if err := p.weigh(ctx, w, v, known); err != nil {
		w.at = time.Time{} // nothing is known of it
	}
	return known, nil
}

// weigh fills in the reports of a look.
func (p *Pilot) weigh(ctx context.Context, w *observing, v *flip.View, watched []*server.ConsumerInfo) error {
	before, err := v.Copy.State(ctx, false)
	if err != nil {
		return err
	}
	infos, err := p.listConsumers(ctx, w.scope)
	if err != nil {
		return err
	}
	states, err := v.Copy.Consumers() // behind infos: what was acknowledged meanwhile was delivered
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, i := range watched {
		there[i.Name] = true
	}
	state := make(map[string]*server.ConsumerState)
	for i := range states {
		state[states[i].Name] = &states[i].State
	}
	d := parity.DeliveryCheck{
		Scope: w.scope, Stored: v.Copy, Deliveries: p.delivered, Now: time.Now(), Window: parity.DefaultWindow().Min,
	}
	for _, i := range infos {
		st := state[i.Name]
		// What is not to be acknowledged is delivered at most once: what a client did not get any more is gone.
		if st == nil || !there[i.Name] || i.Config.AckPolicy == server.AckNone {
			continue
		}
		p.delivered.Watch(w.scope, i.Name, st.Delivered.Stream+1)
		c := servedHere(i, st, w.since)
		c.StreamLast = max(before.LastSeq, 1)
		d.Consumers = append(d.Consumers, c)
	}
	if w.reports, err = w.memory.Check(ctx, &d); err != nil {
		return err
	}
	w.at = d.Now
	return nil
}

// servedHere is a consumer that is served from here, and was not before since.
func servedHere(i *server.ConsumerInfo, st *server.ConsumerState, since time.Time) parity.Consumer {
	c := parity.Consumer{
		Name: i.Name, Config: *i.Config, Side: "ehdb", Delivered: i.Delivered.Stream, AckFloor: i.AckFloor.Stream,
		Pending: i.NumPending, AckPending: uint64(max(i.NumAckPending, 0)), //nolint:gosec // not negative
		Redelivered: uint64(max(i.NumRedelivered, 0)), Exact: true, //nolint:gosec // not negative
		LastDelivery: since,
	}
	if d := i.Delivered.Last; d != nil && d.After(since) {
		c.LastDelivery = *d
	}
	if d := i.AckFloor.Last; d != nil {
		c.LastAck = *d
	}
	for seq := range st.Pending {
		c.Outstanding = append(c.Outstanding, seq)
	}
	for seq := range st.Redelivered { // delivered as often as it may be
		c.Outstanding = append(c.Outstanding, seq)
	}
	return c
}

// listConsumers lists the consumers that a stream has here.
func (p *Pilot) listConsumers(ctx context.Context, scope cutover.Scope) ([]*server.ConsumerInfo, error) {
	_, own, err := p.sides(scope.Account)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, unansweredTime)
	defer cancel()
	var out []*server.ConsumerInfo
	for {
		body := fmt.Appendf(nil, `{"offset":%d}`, len(out))
		m, err := own.Request(ctx, "$JS.API.CONSUMER.LIST."+scope.Stream, nil, body)
		if err != nil {
			return nil, err
		}
		var page server.JSApiConsumerListResponse
		if err := json.Unmarshal(m.Data, &page); err != nil {
			return nil, err
		}
		switch {
		case page.Error != nil:
			return nil, page.Error
		case len(page.Consumers) == 0 && len(out) < page.Total:
			return nil, errors.New("the list of consumers ends before its end")
		}
		if out = append(out, page.Consumers...); len(out) >= page.Total {
			return out, nil
		}
	}
}

// facts replaces what is known by what was gathered since the flip: of consumers, and of latency.
func (w *observing) facts(p *Pilot, c *collector) {
	own := gate.Comparison{
		Status: parity.Status{Consumers: w.reports, DeliveryAt: w.at}, Controls: p.parity.SelfTest(), Now: c.now,
	}
	known := own.Facts()
	for _, name := range []string{
		gate.ControlsOKTicks, gate.Stranded, gate.Unbalanced, gate.Unseen, gate.Silent,
	} {
		delete(c.facts, name)
		if f, ok := known[name]; ok {
			c.facts[name] = f
		}
	}
	for _, name := range []string{gate.PublishP50, gate.PublishP99, gate.DeliverP99} {
		delete(c.facts, name)
	}
	p.probes.mu.Lock()
	l := p.probes.latency[w.scope.Account]
	p.probes.mu.Unlock()
	if l != nil {
		there, here := l.Since(w.since)
		latencyFacts(c, &there, &here)
	}
}
