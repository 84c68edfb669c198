package reverse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// window is what is under way.
type window struct {
	c     *Chain
	next  uint64             // to be published
	acked uint64             // the servers have everything up to here
	lost  <-chan nats.Status // the connection is interrupted: nothing on its way is answered

	fillers []uint64 // published, and not erased yet
	largest int      // size of the largest message, with its headers, that the servers take
}

// upTo publishes the records up to seq.
func (w *window) upTo(ctx context.Context, seq uint64) error {
	w.largest = w.c.largest()
	var failure error
	err := w.c.from.Read(ctx, w.next, func(r *cutover.Record, err error) bool {
		switch {
		case err != nil:
			failure = err
		case r.Seq > seq:
			return false
		default:
			if failure = w.fill(ctx, r.Seq-1); failure == nil {
				failure = w.publish(ctx, r)
			}
			if failure == nil {
				failure = w.eraseDue(ctx)
			}
		}
		return failure == nil
	})
	if failure != nil || err != nil {
		return errors.Join(failure, err)
	}
	return w.fill(ctx, seq)
}

// fill makes holes of all sequences up to seq that are not published yet: messages that are erased, many together. A
// stream from which messages are removed in any order has many small holes.
func (w *window) fill(ctx context.Context, seq uint64) error {
	for w.next <= seq {
		n := w.next
		subject, _ := w.c.filler(n)
		if err := w.publish(ctx, &cutover.Record{Seq: n, Subject: []byte(subject)}); err != nil {
			return err
		}
		w.fillers = append(w.fillers, n)
		if err := w.eraseDue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// eraseDue is erase once there are as many fillers as there may be, or one of them is old.
func (w *window) eraseDue(ctx context.Context) error {
	n := uint64(len(w.fillers))
	if n == 0 || n < w.c.fillers() && w.next-w.fillers[0] < maxAhead {
		return nil
	}
	return w.erase(ctx)
}

// erase waits until all is answered, and erases the fillers.
func (w *window) erase(ctx context.Context) error {
	if err := w.drain(ctx); err != nil {
		return err
	}
	if err := w.c.erase(ctx, w.fillers); err != nil {
		return err
	}
	w.fillers = w.fillers[:0]
	w.c.advance(w.acked)
	return nil
}

// largest is the size of the largest message, with its headers, that the servers take into the stream.
func (c *Chain) largest() int {
	n := int(c.conn.MaxPayload())
	if most := c.from.Config().MaxMsgSize; most > 0 {
		n = min(n, int(most))
	}
	return n
}

// publish sends one record. One that leaves no room for what the chain adds is sent as it is, between the answer to the
// one before it and that to it: its sequence tells afterwards whether another came between.
func (w *window) publish(ctx context.Context, r *cutover.Record) error {
	for w.next-1-w.acked >= maxAhead {
		if err := w.answer(ctx); err != nil {
			return err
		}
	}
	m := nats.NewMsg(string(r.Subject))
	m.Header = w.c.header(r)
	m.Data = bytes.Clone(r.Data)
	m.Reply = w.c.inbox + "." + strconv.FormatUint(r.Seq, 10)
	bare := m.Size()-len(m.Subject)-len(m.Reply) > w.largest
	if bare {
		m.Header.Del(cutover.HeaderOrigin)
		m.Header.Del(nats.ExpectedLastSeqHdr)
		if err := w.drain(ctx); err != nil {
			return err
		}
	}
	if err := w.c.conn.PublishMsg(m); err != nil {
		return err
	}
	w.next = r.Seq + 1
	if bare {
		return w.drain(ctx)
	}
	for len(w.c.answers) > 0 {
		if err := w.answer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drain waits until all is answered.
func (w *window) drain(ctx context.Context) error {
	for w.acked+1 < w.next {
		if err := w.answer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// answer takes one answer, which has to be that to the oldest publish without one.
func (w *window) answer(ctx context.Context) error {
	t := time.NewTimer(answerTime)
	defer t.Stop()
	var m *nats.Msg
	select {
	case m = <-w.c.answers:
	case <-w.lost:
		return fmt.Errorf("no answer to the publish of sequence %d: %w", w.acked+1, nats.ErrDisconnected)
	case <-t.C:
		return fmt.Errorf("no answer to the publish of sequence %d within %v", w.acked+1, answerTime)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	want := w.acked + 1
	if m.Subject != w.c.inbox+"."+strconv.FormatUint(want, 10) {
		return fmt.Errorf("the answer to sequence %d did not come", want)
	}
	var ack struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if len(m.Data) == 0 {
		return fmt.Errorf("sequence %d: the servers have no stream for it: %s", want, m.Header.Get("Status"))
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("sequence %d: the answer is no PubAck: %w", want, err)
	}
	switch {
	case ack.Error != nil:
		return fmt.Errorf("sequence %d: %s (%d)", want, ack.Error.Description, ack.Error.Code)
	case ack.Duplicate && ack.Seq < want: // its window began later there, by as much as the chain was behind
		return fmt.Errorf("sequence %d: the servers take it for sequence %d again, by its message id, until their "+
			"duplicate window is over", want, ack.Seq)
	case ack.Duplicate:
		return fmt.Errorf("%w: sequence %d counts as a duplicate of %d", ErrForked, want, ack.Seq)
	case ack.Seq != want:
		return fmt.Errorf("%w: sequence %d was stored as %d", ErrForked, want, ack.Seq)
	}
	w.acked = want
	if len(w.fillers) == 0 || want < w.fillers[0] { // a hole counts when its filler is erased, and what is behind it
		w.c.advance(want)
	}
	return nil
}
