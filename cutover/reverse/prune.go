package reverse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// TimedOut counts the messages here that the servers' stream does not have any more because their time is over: the one
// here, which stands still, removes none. An error names one that is missing there for no such reason. Both states need
// the sequences that are deleted.
func TimedOut(ctx context.Context, from cutover.Copy, ours, theirs *server.StreamState) (n uint64, err error) {
	cfg, now := from.Config(), time.Now()
	first := theirs.FirstSeq
	if theirs.Msgs == 0 {
		first = theirs.LastSeq + 1
	}
	missing := func(r *cutover.Record, failed error) bool {
		switch {
		case failed != nil:
			err = failed
		case r.Seq >= first:
			return false
		case !over(&cfg, r, now):
			err = fmt.Errorf("the servers have no message %d", r.Seq)
		default:
			n++
		}
		return err == nil
	}
	if failed := from.Read(ctx, ours.FirstSeq, missing); err != nil || failed != nil {
		return n, errors.Join(err, failed)
	}
	first = theirs.LastSeq + 1
	gone := make(map[uint64]bool, len(ours.Deleted))
	for _, seq := range ours.Deleted {
		gone[seq] = true
	}
	for _, seq := range theirs.Deleted {
		if gone[seq] || seq < ours.FirstSeq {
			continue
		}
		if r, failed := from.Get(ctx, seq); !missing(r, failed) {
			return n, err
		}
	}
	return n, nil
}

// over reports whether the time of a message is over, or is within the second to which the chain rounds it.
func over(cfg *server.StreamConfig, r *cutover.Record, now time.Time) bool {
	at := time.Unix(0, r.Time)
	if cfg.MaxAge > 0 && !at.Add(cfg.MaxAge).After(now) {
		return true
	}
	for _, f := range cutover.Fields(nil, r.Header) {
		if string(f.Name) == headerTTL && cfg.AllowMsgTTL {
			d, ok := lifetime(string(f.Value))
			return ok && !at.Add(d).After(now.Add(time.Second))
		}
	}
	return false
}

// Trim removes from the servers' stream the messages before the first one here.
func Trim(ctx context.Context, conn *nats.Conn, from, to cutover.Reader, stream string) error {
	ours, err := from.State(ctx, false)
	if err != nil {
		return err
	}
	theirs, err := to.State(ctx, false)
	if err != nil || theirs.Msgs == 0 || theirs.FirstSeq >= ours.FirstSeq {
		return err
	}
	// What the chain has not published yet is not there to be removed.
	return purgeBelow(ctx, conn, stream, min(ours.FirstSeq, theirs.LastSeq))
}

// purgeBelow removes all messages of the servers' stream below seq, unless it denies that.
func purgeBelow(ctx context.Context, conn *nats.Conn, stream string, seq uint64) error {
	err := denial(request(ctx, conn, "STREAM.PURGE."+stream, fmt.Sprintf(`{"seq":%d}`, seq)))
	if errors.Is(err, errDenied) {
		return nil
	}
	return err
}

// Prune removes from the servers' stream the messages up to last that were removed here, but for those that it denies
// to remove. It returns how many it removed one by one.
func Prune(ctx context.Context, conn *nats.Conn, from cutover.Copy, to cutover.Reader, last uint64) (int, error) {
	e := newEraser(conn, from, to)
	ours, err := from.State(ctx, true)
	if err != nil {
		return 0, err
	}
	theirs, err := to.State(ctx, true)
	if err != nil {
		return 0, err
	}
	first := theirs.FirstSeq
	if below := min(ours.FirstSeq, last+1); first < below && theirs.Msgs > 0 && !from.Config().DenyPurge {
		if err := purgeBelow(ctx, conn, e.name, below); err != nil {
			return 0, err
		}
		first = below
	}
	n, _, err := e.all(ctx, extra(&ours, &theirs, first, last, math.MaxInt))
	return n, err
}
