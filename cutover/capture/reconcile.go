package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// settleLook is how often Settle asks the authority while it waits.
const settleLook = 100 * time.Millisecond

// reconciling removes now and then what the authority has removed, and keeps the configuration up to date.
func (c *Capturer) reconciling(ctx context.Context, to cutover.Copy) error {
	t := time.NewTicker(c.o.Reconcile)
	defer t.Stop()
	unequal := 0
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		lacks, err := c.reconcile(ctx, to)
		if err != nil {
			return err
		}
		if unequal++; !lacks {
			unequal = 0
		}
		if unequal >= mostUnequal {
			return &FrozenError{"messages of the NATS servers are missing here: reset the standby to copy it anew"}
		}
	}
}

// mostUnequal is how often in a row a standby that has got everything may lack messages, before that is for good. It
// may for a moment: its state and the authority's are not of the same one.
const mostUnequal = 3

// reconcile is one round. lacks is true if messages are missing below the standby's last.
func (c *Capturer) reconcile(ctx context.Context, to cutover.Copy) (lacks bool, err error) {
	st, err := to.State(ctx, false) // before the authority's, which is then never behind it
	if err != nil {
		return false, err
	}
	info, err := c.o.From.Info(ctx)
	if err != nil {
		return false, err
	}
	theirs := info.State
	c.status.target(theirs.LastSeq)
	if err := compare(info, to, &st); err != nil {
		return false, err
	}
	if err := c.keepConfig(ctx, info, to); err != nil {
		return false, err
	}
	lacks = theirs.LastSeq == st.LastSeq && theirs.Msgs > st.Msgs
	if theirs.FirstSeq == st.FirstSeq && theirs.NumDeleted == st.NumDeleted && theirs.Msgs >= st.Msgs {
		return lacks, nil // no hole is missing here
	}
	if theirs, err = c.o.From.State(ctx, true); err != nil {
		return false, err
	}
	if err := remove(to, &theirs); err != nil {
		return false, err
	}
	// Is everything that is left here already, though it ends before?
	if at, _ := to.Progress(); theirs.LastSeq > at && lastLive(&theirs) <= at {
		err = to.Advance(theirs.LastSeq, theirs.LastTime.UnixNano())
	}
	return lacks, err
}

// remove removes from the standby what is not in a state of the authority.
func remove(to cutover.Copy, theirs *server.StreamState) error {
	last, _ := to.Progress()
	if first := min(theirs.FirstSeq, last+1); first > 0 {
		if err := to.RemoveBelow(first); err != nil {
			return err
		}
	}
	here, _ := slices.BinarySearch(theirs.Deleted, last+1)
	if here == 0 {
		return nil
	}
	return to.Remove(theirs.Deleted[:here])
}

// lastLive returns the last sequence of a message in a state with details; 0: there is none.
func lastLive(st *server.StreamState) uint64 {
	if st.Msgs == 0 {
		return 0
	}
	last := st.LastSeq
	for i := len(st.Deleted) - 1; i >= 0 && st.Deleted[i] == last; i-- {
		last--
	}
	return last
}

// keepConfig brings the standby's configuration up to date.
func (c *Capturer) keepConfig(ctx context.Context, info *server.StreamInfo, to cutover.Copy) error {
	if sameConfig(info.Config, to.Config()) {
		c.status.config(nil)
		return nil
	}
	_, err := c.o.To.Create(ctx, c.o.Scope.Account, &info.Config, info.Created, 0)
	if err != nil && (errors.Is(err, cutover.ErrRole) || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("the configuration that the stream has now cannot be taken over: %w", err)
	}
	c.status.config(err)
	return nil
}

// sameConfig compares configurations but for what describes a server.
func sameConfig(a, b server.StreamConfig) bool {
	bare := func(cfg server.StreamConfig) []byte {
		cfg.Metadata = maps.Clone(cfg.Metadata)
		delete(cfg.Metadata, server.JSServerVersionMetadataKey)
		delete(cfg.Metadata, server.JSServerLevelMetadataKey)
		text, err := json.Marshal(&cfg)
		if err != nil {
			return nil
		}
		return text
	}
	return string(bare(a)) == string(bare(b))
}

// Settle returns once the standby is durably equal to the stream: the same messages at the same sequences. The stream
// must not change meanwhile, and last must be its last sequence: else that is the error, at once. What may pass is
// waited for until ctx ends; the error then says how far the standby is.
func (c *Capturer) Settle(ctx context.Context, last uint64) error {
	c.Nudge(last)
	for {
		equal, moved, err := c.settled(ctx, last)
		var frozen *FrozenError
		if equal || errors.Is(err, cutover.ErrMoved) || errors.As(err, &frozen) || errors.Is(err, cutover.ErrRole) {
			return err
		}
		t := time.NewTimer(settleLook)
		select {
		case <-moved:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return c.behind(last, err, context.Cause(ctx))
		}
		t.Stop()
	}
}

// settled is one try of Settle. It is worth another when moved is closed; moved may be nil.
func (c *Capturer) settled(ctx context.Context, last uint64) (equal bool, moved <-chan struct{}, err error) {
	if st := c.Status(); st.State == StateFailed {
		return false, nil, &FrozenError{st.Reason}
	}
	to, err := c.o.To.Stream(c.o.Scope.Account, c.o.Scope.Stream)
	if err != nil {
		return false, nil, err
	}
	_, moved = to.Progress()
	theirs, err := c.o.From.State(ctx, true)
	if err != nil {
		return false, moved, err
	}
	if theirs.LastSeq != last {
		return false, moved, fmt.Errorf("%w: it ends at sequence %d now, not at %d", cutover.ErrMoved,
			theirs.LastSeq, last)
	}
	if equal, err = c.settle(ctx, to, &theirs); equal && err == nil {
		err = c.settleConfig(ctx, to)
	}
	return equal && err == nil, moved, err
}

// settleConfig gives the standby the configuration that the stream has: it may just have been changed.
func (c *Capturer) settleConfig(ctx context.Context, to cutover.Copy) error {
	info, err := c.o.From.Info(ctx)
	if err != nil {
		return err
	}
	if err := c.keepConfig(ctx, info, to); err != nil {
		return err
	}
	return c.Status().ConfigErr
}

// settle brings the standby up to a state of the authority, if all its messages are here.
func (c *Capturer) settle(ctx context.Context, to cutover.Copy, theirs *server.StreamState) (equal bool, err error) {
	if at, _ := to.Progress(); at < lastLive(theirs) {
		return false, nil
	}
	if theirs.LastSeq > 0 {
		if err := to.Advance(theirs.LastSeq, theirs.LastTime.UnixNano()); err != nil {
			return false, err
		}
	}
	if err := to.Durable(ctx, theirs.LastSeq); err != nil { // remove looks how far it may go
		return false, err
	}
	if err := remove(to, theirs); err != nil {
		return false, err
	}
	if err := to.Durable(ctx, theirs.LastSeq); err != nil {
		return false, err
	}
	st, err := to.State(ctx, false)
	if err != nil {
		return false, err
	}
	if theirs.Msgs > st.Msgs {
		return false, fmt.Errorf("%d messages are missing here: reset the standby to copy it anew",
			theirs.Msgs-st.Msgs)
	}
	// Not their bytes: what came to the servers by the reverse chain has a mark there (cutover.HeaderOrigin).
	return st.LastSeq == theirs.LastSeq && st.Msgs == theirs.Msgs &&
		(st.FirstSeq == theirs.FirstSeq || theirs.Msgs == 0), nil
}

// behind says how far the standby is from being equal.
func (c *Capturer) behind(last uint64, failure, cause error) error {
	st := c.Status()
	err := fmt.Errorf("the standby is not equal yet: it is at sequence %d of %d, and capture is %s %s: %w",
		st.Applied, last, st.State, st.Reason, cause)
	return errors.Join(err, failure)
}
