package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/origin"
)

// Capture implements flip.Site.
func (s *site) Capture(name string, to cutover.Copy) flip.Capture {
	return &copier{from: s.conn.Stream(name), to: to, log: s.log}
}

// copier copies a stream into its standby.
type copier struct {
	from   *origin.Stream
	to     cutover.Copy
	log    *slog.Logger
	mu     sync.Mutex // held while it copies
	cancel context.CancelFunc
	done   chan struct{}
}

func (c *copier) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			st, err := c.to.State(ctx, false)
			if err == nil {
				err = c.from.Follow(ctx, st.LastSeq+1, func(batch []cutover.Record, _ bool) error { return c.apply(batch) })
			}
			if ctx.Err() == nil {
				c.log.Warn("Copying {stream}: {error}", slog.String("stream", c.from.Name()), slog.Any("error", err))
				time.Sleep(time.Second)
			}
		}
	}()
}

func (c *copier) apply(batch []cutover.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(batch) > 0 {
		n, stall, err := c.to.Apply(batch)
		if err != nil {
			return err
		}
		if batch = batch[n:]; stall != nil {
			<-stall
		}
	}
	return nil
}

func (c *copier) Stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.done
		c.cancel = nil
	}
}

func (c *copier) Nudge(last uint64) { c.from.Nudge(last) }

func (c *copier) Settle(ctx context.Context, last uint64) error {
	st, err := c.to.State(ctx, false)
	if err != nil {
		return err
	}
	err = c.from.Read(ctx, st.LastSeq+1, func(r *cutover.Record, err error) bool {
		return err == nil && r.Seq <= last && c.apply([]cutover.Record{*r}) == nil
	})
	up, failed := c.from.State(ctx, true)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if last > 0 {
		err = c.to.Advance(last, up.LastTime.UnixNano())
	}
	return errors.Join(err, c.to.Remove(up.Deleted), c.to.RemoveBelow(up.FirstSeq), c.to.Durable(ctx, last))
}
