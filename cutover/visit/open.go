package visit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/gateway/feed"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Bounds of a beginning.
const (
	maxFirst = 1 << 20 // subjects of last_per_subject
	atOnce   = 32      // requests that are on their way at a time
)

// Open implements feed.Source. A visit reads one stream at a time.
func (v *Visit) Open(_, stream string, from *feed.From) (feed.Reader, error) {
	if err := v.permitted(stream); err != nil {
		return nil, err
	}
	s := v.conn.Stream(stream)
	info, err := s.Info(v.ctx)
	if err != nil {
		return nil, v.problem(err)
	}
	r := &reader{
		v: v, s: s, created: info.Created, last: info.State.LastSeq, texts: from.Filters, told: info.State.LastSeq + 1,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	for _, text := range from.Filters {
		f, err := subjects.Compile(text)
		if err != nil {
			return nil, err
		}
		r.filters = append(r.filters, f)
	}
	snapshot, err := r.begin(v.ctx, info, from)
	if err != nil {
		return nil, v.problem(err)
	}
	if err := r.start(v.ctx, info.Config.Subjects, snapshot); err != nil {
		return nil, v.problem(err)
	}
	v.mu.Lock()
	v.reader = r
	v.mu.Unlock()
	return r, nil
}

// begin finds where to begin: with the records of a snapshot, if there are any, then at r.next.
func (r *reader) begin(ctx context.Context, info *server.StreamInfo, from *feed.From) (snapshot []uint64, err error) {
	first, end := max(info.State.FirstSeq, 1), info.State.LastSeq+1
	switch from.Policy {
	case feed.DeliverAll:
		r.next = min(first, end)
	case feed.DeliverNew:
		r.next = end
	case feed.DeliverByStartSequence: // what is missing from there on was asked for
		r.next, r.told = max(from.Seq, 1), max(from.Seq, 1)
	case feed.DeliverByStartTime:
		r.next, err = since(ctx, r.s, first, end, from.Time)
	case feed.DeliverLast:
		r.next, err = r.lastOf(ctx, end)
	case feed.DeliverLastPerSubject:
		r.next = end
		snapshot, err = r.lasts(ctx, info)
	}
	return snapshot, err
}

// since returns the first sequence from first on, or end, whose record is not older.
func since(ctx context.Context, s *origin.Stream, first, end uint64, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(end-first), func(i int) bool { //nolint:gosec // fewer than records
		if failed != nil {
			return true
		}
		rec, err := s.Next(ctx, first+uint64(i)) //nolint:gosec // not negative
		if errors.Is(err, cutover.ErrNoRecord) {
			return true
		}
		if err != nil {
			failed = err
			return true
		}
		return rec.Time >= t.UnixNano()
	})
	return first + uint64(n), failed //nolint:gosec // not negative
}

// lastOf returns the last sequence that the filters match.
func (r *reader) lastOf(ctx context.Context, end uint64) (uint64, error) {
	filters := r.texts
	if len(filters) == 0 {
		filters = []string{">"}
	}
	found := uint64(0)
	for _, f := range filters {
		rec, err := r.s.Last(ctx, f)
		if err == nil {
			found = max(found, rec.Seq)
		} else if !errors.Is(err, cutover.ErrNoRecord) {
			return 0, err
		}
	}
	if found == 0 {
		found = end
	}
	return found, nil
}

// lasts returns the sequences of the last record of each subject.
func (r *reader) lasts(ctx context.Context, info *server.StreamInfo) ([]uint64, error) {
	filters := r.texts
	if len(filters) == 0 {
		filters = []string{">"}
	}
	names := make(map[string]struct{})
	for _, f := range filters {
		list, err := r.s.Subjects(ctx, f, maxFirst)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", feed.ErrTooMany, err)
		}
		for _, name := range list {
			names[name] = struct{}{}
		}
	}
	var mu sync.Mutex
	var out []uint64
	err := each(ctx, names, func(name string) error {
		rec, err := r.s.Last(ctx, name)
		if err != nil {
			return err
		}
		if rec.Seq <= info.State.LastSeq { // a later one follows
			mu.Lock()
			out = append(out, rec.Seq)
			mu.Unlock()
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// each calls fn for all names, some at a time. That there is no record is no error.
func each(ctx context.Context, names map[string]struct{}, fn func(name string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for name := range names {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			if err := fn(name); err != nil && !errors.Is(err, cutover.ErrNoRecord) {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
