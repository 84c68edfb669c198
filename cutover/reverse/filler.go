package reverse

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// fillerOf is a subject that a stream stores and that nobody uses, another one for each sequence, or the only one that
// it has: then it is not the fillers' own. With a subject each, none makes the servers drop another by a limit for each
// subject.
func fillerOf(cfg *server.StreamConfig, seq uint64) (subject string, own bool) {
	if len(cfg.Subjects) == 0 {
		return cfg.Name, false
	}
	tokens := strings.Split(cfg.Subjects[0], ".")
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
func Sweep(ctx context.Context, conn *nats.Conn, from cutover.Copy, to cutover.Reader) (n int, err error) {
	ours, err := from.State(ctx, true)
	if err != nil {
		return 0, err
	}
	theirs, err := to.State(ctx, true)
	if err != nil {
		return 0, err
	}
	cfg := from.Config()
	e := newEraser(conn, from, to)
	read := 0
	sweep := func(r *cutover.Record) error {
		if read++; read > maxSweep {
			return errEnough
		}
		if subject, _ := fillerOf(&cfg, r.Seq); !isFiller(r, subject) {
			return nil
		}
		n++
		return e.erase(ctx, r.Seq)
	}
	// Nothing below our first message is here.
	if err := below(ctx, to, theirs.FirstSeq, min(ours.FirstSeq, ours.LastSeq+1), sweep); err != nil {
		return n, enough(err)
	}
	for _, seq := range ours.Deleted {
		if _, gone := slices.BinarySearch(theirs.Deleted, seq); gone || seq < theirs.FirstSeq {
			continue
		}
		r, err := to.Get(ctx, seq)
		if err == nil {
			err = sweep(r)
		}
		if err != nil && !errors.Is(err, cutover.ErrNoRecord) {
			return n, enough(err)
		}
	}
	return n, nil
}

var errEnough = errors.New("enough")

// enough is err, unless that is errEnough.
func enough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// below calls fn with the records from first on that are below end.
func below(ctx context.Context, to cutover.Reader, first, end uint64, fn func(*cutover.Record) error) error {
	if first >= end {
		return nil
	}
	var failure error
	err := cutover.ReadTo(ctx, to, first, end-1, func(r *cutover.Record, err error) bool {
		if failure = err; err == nil {
			failure = fn(r)
		}
		return failure == nil
	})
	return errors.Join(failure, err)
}
