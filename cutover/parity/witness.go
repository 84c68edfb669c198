package parity

import (
	"context"
	"errors"

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

// readItems reads records with first <= seq <= last, at most limit of them. more says that there may be others.
func readItems(
	ctx context.Context,
	r cutover.Reader,
	first, last uint64,
	limit int,
) (out []item, more bool, err error) {
	if first > last {
		return nil, false, nil
	}
	var broken error
	err = r.Read(ctx, first, func(rec *cutover.Record, err error) bool {
		if rec == nil && err == nil || rec == nil && !unreadable(err) {
			broken = errors.Join(errors.New("a reader gave neither a record nor the sequence of one"), err)
			return false
		}
		it := itemOf(rec, err)
		if it.seq > last {
			return false
		}
		if len(out) == limit {
			more = true
			return false
		}
		out = append(out, it)
		return true
	})
	return out, more, errors.Join(err, broken)
}

func unreadable(err error) bool {
	var bad *cutover.UnreadableError
	return errors.As(err, &bad)
}

// readOne reads the record with that sequence by the same way as all others, so that a way of reading that leaves it
// out is not hidden. It returns nil if there is none.
func readOne(ctx context.Context, r cutover.Reader, seq uint64) (*item, error) {
	items, _, err := readItems(ctx, r, seq, seq, 1)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	return &items[0], nil
}

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
