package jetstreamapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Bounds of the chunks of a restore that were not read yet, in bytes. At the first their sender is asked to pause, as
// it would by waiting for its answers; who goes on all the same fails at the second.
const (
	chunksPause = 1 << 20
	chunksMost  = 64 << 20
	chunkCost   = 128 // of a chunk beside its bytes
)

// chunkReceiver is the bytes of a backup as they come in: a bus.Sink for the chunks, and the io.Reader of their bytes.
// A chunk is answered once it was read, so that a client sends no faster than its backup is stored.
type chunkReceiver struct {
	ctx     context.Context //nolint:containedctx // io.Reader has no place for it
	timeout time.Duration   // of the wait for a chunk
	in      bus.Session
	out     *publisher
	stream  string // for errors: "ACCOUNT > STREAM"

	mu     sync.Mutex
	queue  []chunk
	queued int           // bytes
	stall  chan struct{} // closed when there is room again; nil: there is
	fault  error         // why no more are taken
	wake   chan struct{} // there is something new; one entry

	// What follows is the reader's.
	current *chunk // being read; nil: none
	rest    []byte // of it
	last    *chunk // the empty one that ends the backup; nil: not here yet
	total   int64  // bytes received
}

type chunk struct {
	data  []byte
	reply string
}

func (c *chunk) cost() int { return len(c.data) + chunkCost }

func newChunkReceiver(a *account, stream, subject string) (*chunkReceiver, error) {
	c := &chunkReceiver{
		timeout: a.svc.opts.patience.chunk, stream: a.name + " > " + stream, wake: make(chan struct{}, 1),
	}
	var err error
	if c.out, err = newPublisher(a.svc.opts.Bus, a.name); err != nil {
		return nil, err
	}
	if c.in, err = a.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: a.name}, c); err == nil {
		_, err = c.in.Subscribe("chunk", subject, "")
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// unsubscribe refuses further chunks: who sends one is told that nobody listens.
func (c *chunkReceiver) unsubscribe() { c.in.Unsubscribe("chunk", 0) }

// close ends everything; senders that pause go on.
func (c *chunkReceiver) close() {
	if c.in != nil {
		c.in.Close()
	}
	c.mu.Lock()
	c.queue, c.queued = nil, 0
	c.resume()
	c.fault = errors.Join(c.fault, errShutdown)
	c.mu.Unlock()
	c.out.close()
}

// resume lets senders go on. mu is held.
func (c *chunkReceiver) resume() {
	if c.stall != nil {
		close(c.stall)
		c.stall = nil
	}
}

// Deliver implements bus.Sink.
func (c *chunkReceiver) Deliver(batch []bus.Delivery) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		m := &batch[i].Msg
		n := chunk{data: bytes.Clone(m.Data), reply: string(m.Reply)}
		switch {
		case c.fault != nil:
			n.data = nil // only to be answered
		case c.queued+n.cost() > chunksMost:
			c.fault = fmt.Errorf("restore for stream '%s' received chunks faster than it answered them", c.stream)
			n.data = nil
		}
		if c.queued > chunksMost {
			continue // nobody waits for so many answers
		}
		c.queue = append(c.queue, n)
		c.queued += n.cost()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	if c.queued > chunksPause && c.stall == nil {
		c.stall = make(chan struct{})
	}
	return c.stall
}

// take returns the next chunk, waiting for it. An error: there will be none.
func (c *chunkReceiver) take() (*chunk, error) {
	limit := time.NewTimer(c.timeout)
	defer limit.Stop()
	for {
		if n, err := c.next(); n != nil || err != nil {
			return n, err
		}
		select {
		case <-c.wake:
		case <-limit.C:
			return nil, fmt.Errorf("restore for stream '%s' is stalled", c.stream)
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
	}
}

func (c *chunkReceiver) next() (*chunk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return nil, c.fault
	}
	if len(c.queue) == 0 {
		return nil, nil //nolint:nilnil // nothing there, nothing wrong
	}
	n := c.queue[0]
	c.queue[0] = chunk{}
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	if c.queued -= n.cost(); c.queued <= chunksPause {
		c.resume()
	}
	return &n, nil
}

// Read implements io.Reader; io.EOF is the client's empty chunk.
func (c *chunkReceiver) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if err := c.advance(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// advance answers the chunk that was read and goes to the next.
func (c *chunkReceiver) advance() error {
	if c.last != nil {
		return io.EOF
	}
	c.answer(nil)
	n, err := c.take()
	if err != nil {
		return err
	}
	if len(n.data) == 0 {
		c.last = n
		return io.EOF
	}
	if n.reply == "" {
		return fmt.Errorf("restore for stream '%s' requires reply subject for each chunk", c.stream)
	}
	c.total += int64(len(n.data))
	c.current, c.rest = n, n.data
	return nil
}

// answer answers the chunk that is being read: with nothing, which asks for more, or with what went wrong.
func (c *chunkReceiver) answer(body []byte) {
	if c.current != nil {
		c.send(c.current.reply, body)
		c.current = nil
	}
}

func (c *chunkReceiver) send(reply string, body []byte) {
	c.out.send(reply, nil, body)
	c.out.flush()
}

// drain takes what the client still sends after the backup's end, up to its empty chunk.
func (c *chunkReceiver) drain() error {
	c.rest = nil
	for {
		switch err := c.advance(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		c.rest = nil
	}
}

// conclude answers everybody who still waits, and takes no more chunks.
func (c *chunkReceiver) conclude(body []byte) {
	c.unsubscribe()
	c.answer(body)
	c.mu.Lock()
	waiting := c.queue
	c.queue, c.queued = nil, 0
	c.resume()
	c.mu.Unlock()
	for i := range waiting {
		c.out.send(waiting[i].reply, nil, body)
	}
	if c.last != nil {
		c.out.send(c.last.reply, nil, body)
	}
	c.out.flush()
}
