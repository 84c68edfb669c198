package capture

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Bounds of one write.
const (
	writeRecords = 1024
	writeBytes   = 2 << 20
)

// writer writes into the standby. Whose turn it is takes from the queue and writes: so the order stays, whoever writes.
type writer struct {
	c    *Capturer
	to   cutover.Copy
	turn chan struct{} // has an entry while it is somebody's turn
}

// drain writes what is in the queue until that is closed and empty, or ctx ends.
func (w *writer) drain(ctx context.Context) error {
	for {
		wrote, filled, more, err := w.some(ctx)
		switch {
		case err != nil:
			return err
		case wrote:
		case !more:
			return nil
		default:
			select {
			case <-filled:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// some writes a batch from the queue.
func (w *writer) some(ctx context.Context) (wrote bool, filled <-chan struct{}, more bool, err error) {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return false, nil, false, context.Cause(ctx)
	}
	defer func() { <-w.turn }()
	return w.next(ctx)
}

// next is some, with the turn taken.
func (w *writer) next(ctx context.Context) (wrote bool, filled <-chan struct{}, more bool, err error) {
	batch, filled, more := w.c.queue.take(writeRecords, writeBytes)
	if len(batch) == 0 {
		return false, filled, more, nil
	}
	if err := w.write(ctx, batch); err != nil {
		return false, nil, false, err
	}
	w.c.status.counts.add(func(c *Counts) {
		c.Drained += uint64(len(batch))
		c.Pending -= uint64(len(batch))
	})
	return true, filled, more, nil
}

// inline writes what is in the queue, then batch.
func (w *writer) inline(ctx context.Context, batch []cutover.Record) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.turn }()
	for {
		wrote, _, _, err := w.next(ctx)
		if err != nil {
			return err
		}
		if !wrote {
			return w.write(ctx, batch)
		}
	}
}

// write writes a batch and returns once it is durable. What fails is tried again until ctx ends: the data directory may
// be opened anew meanwhile, and what was not durable is then written once more. Only another role is for good.
func (w *writer) write(ctx context.Context, batch []cutover.Record) error {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) { //nolint:mnd // doubles
		err := w.once(ctx, batch)
		switch {
		case err == nil:
			w.c.status.wrote(batch)
			w.c.status.stuck("")
			w.report(batch)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, cutover.ErrRole), errors.Is(err, cutover.ErrNoStream):
			return err
		}
		if w.c.status.stuck("nothing can be written here: " + err.Error()) {
			w.c.log.Warn("The standby of a stream takes nothing; it is tried again", slog.Any("error", err))
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// once applies a batch and waits until it is durable.
func (w *writer) once(ctx context.Context, batch []cutover.Record) error {
	last := batch[len(batch)-1].Seq
	for len(batch) > 0 {
		n, stall, err := w.to.Apply(batch)
		if err != nil {
			return err
		}
		batch = batch[n:]
		if stall == nil {
			continue
		}
		select {
		case <-stall:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return w.to.Durable(ctx, last)
}

func (w *writer) report(batch []cutover.Record) {
	if w.c.o.Copied == nil || !w.c.status.followed(batch[0].Time) {
		return
	}
	w.c.o.Copied(max(time.Since(time.Unix(0, batch[0].Time)), 0), len(batch))
}
