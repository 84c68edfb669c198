package capture

import (
	"context"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// busyLook is how often Options.Busy is asked again.
const busyLook = 100 * time.Millisecond

// read gives the queue what the authority has, from behind what is durable here.
func (c *Capturer) read(ctx context.Context, to cutover.Copy, w *writer) error {
	st, err := to.State(ctx, false)
	if err != nil {
		return err
	}
	state := StateBackfilling
	return c.o.From.Follow(ctx, st.LastSeq+1, func(batch []cutover.Record, now bool) error {
		if len(batch) > 0 {
			c.status.target(batch[len(batch)-1].Seq)
			if state == StateLive && c.pausedFor() != "" {
				state = StateBackfilling // when it goes on, it is behind
			}
			if state != StateLive {
				if err := c.slowDown(ctx, batch); err != nil {
					return err
				}
			}
			inline := func(rest []cutover.Record) error { return w.inline(ctx, rest) }
			if err := c.queue.put(ctx, batch, inline); err != nil {
				return err
			}
		}
		if now && state != StateLive {
			state = StateLive
			c.log.Debug("The standby of a stream has caught up")
		}
		c.status.enter(state, "")
		return nil
	})
}

// slowDown waits until as much as batch may be copied, while the standby is behind.
func (c *Capturer) slowDown(ctx context.Context, batch []cutover.Record) error {
	pace := c.pace.Load() // it may be another one for the next batch
	if err := c.yield(ctx); err != nil || pace == nil {
		return err
	}
	for size := total(batch); size > 0; size -= pace.Burst() {
		if err := pace.WaitN(ctx, min(size, pace.Burst())); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// yield waits while there is a reason to.
func (c *Capturer) yield(ctx context.Context) error {
	for reason := c.waits(); reason != ""; reason = c.waits() {
		c.status.enter(StateThrottled, reason)
		t := time.NewTimer(busyLook)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

func total(batch []cutover.Record) (n int) {
	for i := range batch {
		n += sizeOf(&batch[i])
	}
	return n
}
