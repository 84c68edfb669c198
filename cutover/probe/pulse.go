package probe

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Pulse measures a little at a time how long the servers take to acknowledge a publish, on a stream of its own. One
// goroutine uses it.
type Pulse struct {
	side          Side
	name, subject string
	made          int // replicas of the stream that is there; 0: there is none
}

// NewPulse returns a measurement on a stream of that name, which stores subject.
func NewPulse(side Side, name, subject string) *Pulse {
	return &Pulse{side: side, name: name, subject: subject}
}

// Beat publishes n messages one after the other, to a stream of so many replicas, and gives took how long each took.
// One that is not answered took as long as was waited.
func (p *Pulse) Beat(ctx context.Context, n, replicas int, took func(time.Duration)) error {
	if replicas = max(replicas, 1); p.made != replicas {
		p.Close(ctx)
		cfg := server.StreamConfig{
			Name: p.name, Subjects: []string{p.subject}, Storage: server.FileStorage, Replicas: replicas, MaxMsgs: 16,
			Description: "made by ehdb-gateway to measure the servers' load; it can be deleted",
		}
		if err := create(ctx, p.side, "STREAM.CREATE."+p.name, cfg); err != nil {
			return err
		}
		p.made = replicas
	}
	for range n {
		if err := p.one(ctx, took); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pulse) one(ctx context.Context, took func(time.Duration)) error {
	bounded, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	since := time.Now()
	m, err := p.side.Request(bounded, p.subject, nil, nil)
	switch {
	case err == nil:
		err = refusal(m)
	case errors.Is(bounded.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		took(time.Since(since))
		return err
	}
	if err != nil {
		p.made = 0 // somebody may have deleted it
		return err
	}
	took(time.Since(since))
	return nil
}

// Close deletes the stream. It is made again when it is needed.
func (p *Pulse) Close(ctx context.Context) {
	if p.made == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	_, _ = p.side.Request(ctx, "$JS.API.STREAM.DELETE."+p.name, nil, nil) // the next measurement uses it else
	p.made = 0
}
