package pilot

import (
	"context"
	"log/slog"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// A canary may name gates that end it. They are asked about its consumer alone.

// endTime bounds giving a consumer back once.
const endTime = 10 * time.Second

// served names a consumer that is served from here by itself.
type served struct {
	scope    cutover.Scope
	consumer string
}

// endCanaries ends those whose gates fail, until ctx ends.
func (p *Pilot) endCanaries(ctx context.Context) {
	t := time.NewTicker(p.confirming())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.lookAtCanaries(ctx)
	}
}

// lookAtCanaries asks the gates of each once.
func (p *Pilot) lookAtCanaries(ctx context.Context) {
	there := make(map[served]bool)
	for _, scope := range p.engine.Streams() {
		list, err := p.engine.Canaries(scope)
		if err != nil {
			continue
		}
		for i := range list {
			if c := &list[i]; len(c.Abort) > 0 {
				k := served{scope, c.Consumer}
				there[k] = true
				p.lookAtCanary(ctx, k, c.Abort)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.failing {
		if !there[k] {
			delete(p.failing, k)
		}
	}
}

// lookAtCanary asks the gates of one, and ends it if they have failed twice.
func (p *Pilot) lookAtCanary(ctx context.Context, k served, gates []string) {
	p.metrics.Watched(k.scope, k.consumer)
	report, err := p.evaluate(ctx, k.scope, &question{purpose: gate.Flip, consumer: k.consumer})
	if err != nil {
		return
	}
	p.mu.Lock()
	f := p.failing[k]
	if f == nil {
		f = newFailing()
		p.failing[k] = f
	}
	twice := f.take(failed(&report, gates))
	p.mu.Unlock()
	if twice == "" {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	why := "--auto-abort-on: failed twice in a row: " + twice
	err = p.engine.EndCanary(bounded, k.scope, k.consumer, flip.MoveOptions{By: "gateway", Reason: why})
	if err != nil { // it is tried again
		p.mu.Lock()
		news := f.said != err.Error()
		f.said = err.Error()
		p.mu.Unlock()
		if news && ctx.Err() == nil {
			p.o.Logger.Warn("Consumer {consumer} of {stream} cannot be given back to the servers yet: {error}",
				slog.String("consumer", k.consumer), slog.String("stream", k.scope.String()), slog.Any("error", err))
		}
		return
	}
	p.mu.Lock()
	delete(p.failing, k)
	p.mu.Unlock()
	p.metrics.Aborted(k.scope, k.consumer)
	p.o.Logger.Warn("Consumer {consumer} of {stream} was given back to the servers: {reason}",
		slog.String("consumer", k.consumer), slog.String("stream", k.scope.String()), slog.String("reason", why))
	facts := p.about(k.scope, "canary", "nats", face.Actor{By: "gateway", Reason: "consumer " + k.consumer})
	facts.Error = why
	p.tell(hook.Failure, k.scope, facts)
}

// failingNow are the gates of a canary that failed when they were looked at last.
func (p *Pilot) failingNow(scope cutover.Scope, consumer string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.failing[served{scope, consumer}]
	switch {
	case f == nil:
		return ""
	case f.said != "":
		return f.text + "; it cannot be given back yet: " + f.said
	}
	return f.text
}
