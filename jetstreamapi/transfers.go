package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/storage"
)

// transfers are the snapshots and restores an account has under way. Each is a goroutine of its own, for it waits for
// a client.
type transfers struct {
	mu     sync.Mutex
	live   map[*transfer]struct{}
	closed bool
}

type transfer struct {
	files  bool // reads or writes the data directory
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// maxTransfers bounds the snapshots and restores of an account at a time: each takes a few megabytes.
const maxTransfers = 32

var (
	errTransfers = fmt.Errorf("%d snapshots and restores are under way already", maxTransfers)
	errShutdown  = errors.New("server is shutting down")
)

// start runs one. Its context has the values of the service's and ends, with the cause, when it has to give up: after
// the API was closed, so that it can still be told about.
func (ts *transfers) start(service context.Context, files bool, run func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(service))
	t := &transfer{files: files, cancel: cancel, done: make(chan struct{})}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	switch {
	case ts.closed:
		cancel(nil)
		return errShutdown
	case len(ts.live) >= maxTransfers:
		cancel(nil)
		return errTransfers
	case ts.live == nil:
		ts.live = make(map[*transfer]struct{})
	}
	ts.live[t] = struct{}{}
	go func() {
		defer close(t.done)
		run(ctx)
		cancel(nil)
		ts.mu.Lock()
		delete(ts.live, t)
		ts.mu.Unlock()
	}()
	return nil
}

// interrupt ends those that have to do with the data directory and waits for them.
func (ts *transfers) interrupt(cause error) { ts.end(cause, func(t *transfer) bool { return t.files }) }

// close ends all, waits for them and lets none begin any more.
func (ts *transfers) close() {
	ts.mu.Lock()
	ts.closed = true
	ts.mu.Unlock()
	ts.end(errShutdown, func(*transfer) bool { return true })
}

func (ts *transfers) end(cause error, which func(*transfer) bool) {
	ts.mu.Lock()
	var ended []*transfer
	for t := range ts.live {
		if which(t) {
			t.cancel(cause)
			ended = append(ended, t)
		}
	}
	ts.mu.Unlock()
	for _, t := range ended {
		<-t.done
	}
}

// patience is how long a transfer waits for its client.
type patience struct {
	interest time.Duration // for somebody to listen on the deliver subject of a snapshot
	ack      time.Duration // for the ack of a chunk of a snapshot
	chunk    time.Duration // for the next chunk of a restore
}

var defaultPatience = patience{interest: 2 * time.Second, ack: 5 * time.Second, chunk: 5 * time.Second}

// awaitDurable waits until what was appended to log is durable and visible.
func awaitDurable(ctx context.Context, log *storage.Log) error {
	done := make(chan error, 1)
	log.Sync(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
