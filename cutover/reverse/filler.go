package reverse

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/subjects"
)

// fillerOf is a subject that a stream stores and that nobody uses, another one for each sequence, or the only one that
// it has: then it is not the fillers' own. With a subject each, none makes the servers drop another by a limit for each
// subject.
func fillerOf(cfg *server.StreamConfig, seq uint64) (subject string, own bool) {
	if len(cfg.Subjects) == 0 {
		return cfg.Name, false
	}
	tokens := strings.Split(cfg.Subjects[max(slices.IndexFunc(cfg.Subjects, subjects.HasWildcard), 0)], ".")
	for i, t := range tokens {
		if t == "*" || t == ">" {
			tokens[i], own = "ehdb-filler-"+strconv.FormatUint(seq, 10), true
		}
	}
	return strings.Join(tokens, "."), own
}

// isFiller reports whether a record is one of the chain's fillers.
func isFiller(r *cutover.Record, subject string) bool {
	return string(r.Subject) == subject && len(r.Data) == 0 && cutover.Marked(r.Header)
}

// maxSweep bounds how many messages Sweep reads. There are more of them only if the servers have forgotten a purge.
const maxSweep = 10_000

// Sweep deletes fillers of the chain that are in the servers' stream again: a nats-server that is killed may forget a
// deletion, though it syncs every message. from is the copy, which never had them. It returns how many it deleted.
func Sweep(ctx context.Context, conn *nats.Conn, from cutover.Copy, to cutover.Reader) (int, error) {
	ours, err := from.State(ctx, true)
	if err != nil {
		return 0, err
	}
	theirs, err := to.State(ctx, true)
	if err != nil {
		return 0, err
	}
	fillers, err := fillersAmong(ctx, extra(&ours, &theirs, 0, ours.LastSeq, maxSweep), from.Config(), to)
	if err != nil {
		return 0, err
	}
	n, _, err := newEraser(conn, from, to).all(ctx, fillers)
	return n, err
}

// extra are sequences, of first to last, of messages that the servers have and that are not here, not more than most.
// Nothing below our first message is here. Both states need the sequences that are deleted.
func extra(ours, theirs *server.StreamState, first, last uint64, most int) (list []uint64) {
	if theirs.Msgs == 0 {
		return nil
	}
	gone := make(map[uint64]bool, len(theirs.Deleted))
	for _, seq := range theirs.Deleted {
		gone[seq] = true
	}
	first, last = max(first, theirs.FirstSeq), min(last, theirs.LastSeq)
	for seq := first; seq < min(ours.FirstSeq, last+1) && len(list) < most; seq++ {
		if !gone[seq] {
			list = append(list, seq)
		}
	}
	for _, seq := range ours.Deleted {
		if !gone[seq] && seq >= first && seq <= last && len(list) < most {
			list = append(list, seq)
		}
	}
	return list
}

// fillersAmong returns those of the servers' messages that are fillers.
func fillersAmong(
	ctx context.Context, seqs []uint64, cfg server.StreamConfig, to cutover.Reader,
) (list []uint64, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, seq := range seqs {
		g.Go(func() error {
			r, err := to.Get(ctx, seq)
			if errors.Is(err, cutover.ErrNoRecord) {
				return nil
			} else if err != nil {
				return err
			}
			if subject, _ := fillerOf(&cfg, seq); isFiller(r, subject) {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, seq)
			}
			return nil
		})
	}
	err = g.Wait()
	return list, err
}
