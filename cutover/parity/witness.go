package parity

import (
	"context"
	"errors"
	"math"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// item is one record as a witness tells of it.
type item struct {
	seq  uint64
	time int64
	hash uint64
	err  error // it cannot be read
}

func itemOf(r *cutover.Record, err error) item {
	if bad, ok := errors.AsType[*cutover.UnreadableError](err); ok {
		return item{seq: bad.Seq, err: err}
	}
	return item{seq: r.Seq, time: r.Time, hash: cutover.Hash(r.Subject, r.Header, r.Data)}
}

// reach is which records are read: those with first <= seq <= last, at most limit of them, and none behind the first
// that is younger than until (Unix nanoseconds).
type reach struct {
	first, last uint64
	limit       int
	until       int64
}

// readItems reads records. more says that there may be others.
func readItems(ctx context.Context, r cutover.Reader, w reach) (out []item, more bool, err error) {
	if w.first > w.last {
		return nil, false, nil
	}
	var broken error
	err = cutover.ReadTo(ctx, r, w.first, w.last, func(rec *cutover.Record, err error) bool {
		if rec == nil && err == nil || rec == nil && !unreadable(err) {
			broken = errors.Join(errors.New("a reader gave neither a record nor the sequence of one"), err)
			return false
		}
		it := itemOf(rec, err)
		if len(out) == w.limit {
			more = true
			return false
		}
		out = append(out, it)
		more = it.time > w.until
		return !more
	})
	return out, more, errors.Join(err, broken)
}

func unreadable(err error) bool {
	var bad *cutover.UnreadableError
	return errors.As(err, &bad)
}

// readThese reads the records with these sequences, which ascend, by the same way as all others, so that a way of
// reading that leaves one out is not hidden. Sequences side by side are read at once.
func readThese(ctx context.Context, r cutover.Reader, seqs []uint64) (map[uint64]*item, error) {
	out := make(map[uint64]*item, len(seqs))
	for len(seqs) > 0 {
		n := 1
		for n < len(seqs) && seqs[n]-seqs[n-1] <= aside {
			n++
		}
		items, _, err := readItems(ctx, r, reach{seqs[0], seqs[n-1], chunk, math.MaxInt64})
		if err != nil {
			return nil, err
		}
		for i := range items {
			out[items[i].seq] = &items[i]
		}
		seqs = seqs[n:]
	}
	return out, nil
}

// aside is how far sequences may be apart that are read at once.
const aside = 8

// rules is what a stream's configuration says about the comparison.
type rules struct {
	interior bool // records between others may be removed by the stream itself
	exact    bool // what is stored is what was published
}

func rulesOf(cfg *server.StreamConfig) rules {
	return rules{
		interior: cfg.Retention != server.LimitsPolicy || cfg.MaxMsgsPer > 0 || cfg.AllowRollup || cfg.AllowMsgTTL ||
			cfg.SubjectDeleteMarkerTTL > 0 || cfg.AllowMsgSchedules,
		exact: cfg.SubjectTransform == nil && !cfg.AllowMsgCounter && cfg.Mirror == nil,
	}
}
