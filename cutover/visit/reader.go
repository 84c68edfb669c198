package visit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/gateway/feed"
	"github.com/noetl/ehdb-gateway/subjects"
)

// reader reads a stream for a feed: a goroutine follows the stream and hands over one batch at a time. It implements
// feed.Reader.
type reader struct {
	v       *Visit
	s       *origin.Stream
	created time.Time
	texts   []string // the filters; none: all subjects
	filters []*subjects.Filter
	last    uint64 // sequence at the beginning

	end   context.CancelFunc
	ended sync.WaitGroup
	subs  []*nats.Subscription
	wake  chan struct{}
	room  chan struct{} // a batch was taken

	// The feed's goroutine alone uses these.
	batch     []cutover.Record
	next      uint64 // nothing was told from here on; of the goroutine before it runs
	told      uint64 // from here on it has to be told what is missing
	following bool   // the snapshot has been given, or there is none

	mu sync.Mutex
	// The following are guarded by mu.
	handed *handed // nil: taken
	err    error
	seen   uint64 // the highest sequence that was read
}

// handed is a batch, of the snapshot or of what follows.
type handed struct {
	records []cutover.Record
	follows bool
}

// start begins to read.
func (r *reader) start(ctx context.Context, takes []string, snapshot []uint64) error {
	ctx, r.end = context.WithCancel(ctx)
	bell := make(chan struct{}, 1)
	ring := func(*nats.Msg) {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	filters := r.texts
	if len(filters) == 0 {
		filters = takes
	}
	for _, f := range filters { // what is not permitted is refused by the servers, and then nothing rings
		sub, err := r.v.nc.Subscribe(f, ring)
		if err != nil {
			r.end()
			return err
		}
		r.subs = append(r.subs, sub)
	}
	next := r.next
	r.following = len(snapshot) == 0
	r.ended.Go(func() { r.hear(ctx, bell) })
	r.ended.Go(func() { r.read(ctx, snapshot, next) })
	return nil
}

// settle is how long a stream may take to store what subscribers have already.
const settle = 20 * time.Millisecond

// hear makes the reader look when something was published.
func (r *reader) hear(ctx context.Context, bell <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-bell:
		}
		r.s.Nudge(0)
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		r.s.Nudge(0)
	}
}

// retries bound the attempts to go on after an error, which is one of the servers.
const (
	retries    = 5
	retryPause = 200 * time.Millisecond
)

// read hands over the snapshot, then what follows.
func (r *reader) read(ctx context.Context, snapshot []uint64, next uint64) {
	for len(snapshot) > 0 {
		n := min(len(snapshot), atOnce)
		list, err := r.gets(ctx, snapshot[:n])
		if err == nil {
			err = r.hand(ctx, &handed{records: list})
		}
		if err != nil {
			r.fail(err)
			return
		}
		snapshot = snapshot[n:]
	}
	for tries := 0; ; {
		err := r.s.Follow(ctx, next, func(batch []cutover.Record, _ bool) error {
			tries = 0
			if len(batch) == 0 {
				return nil
			}
			next = batch[len(batch)-1].Seq + 1
			r.saw(next - 1)
			return r.hand(ctx, &handed{batch, true})
		})
		tries++
		gone := errors.Is(err, cutover.ErrNoStream) || r.v.nc.IsClosed()
		if ctx.Err() != nil || gone || tries > retries {
			r.fail(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

func (r *reader) saw(seq uint64) {
	r.mu.Lock()
	r.seen = seq
	r.mu.Unlock()
}

// gets returns those of the records that are there.
func (r *reader) gets(ctx context.Context, seqs []uint64) ([]cutover.Record, error) {
	found := make([]*cutover.Record, len(seqs))
	errs := make([]error, len(seqs))
	var all sync.WaitGroup
	for i, seq := range seqs {
		all.Go(func() { found[i], errs[i] = r.s.Get(ctx, seq) })
	}
	all.Wait()
	var out []cutover.Record
	for i, rec := range found {
		switch {
		case errs[i] == nil:
			out = append(out, *rec)
		case !errors.Is(errs[i], cutover.ErrNoRecord): // else another has taken its place, which follows
			return nil, errs[i]
		}
	}
	return out, nil
}

// hand waits until the batch before was taken, and hands over this one.
func (r *reader) hand(ctx context.Context, h *handed) error {
	for {
		r.mu.Lock()
		if r.handed == nil {
			r.handed = h
			r.mu.Unlock()
			r.ring()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-r.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	r.err = r.v.problem(err)
	r.mu.Unlock()
	r.ring()
}

func (r *reader) ring() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// take returns a batch, nil if there is none.
func (r *reader) take() (*handed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.handed
	if h == nil {
		return nil, r.err
	}
	r.handed = nil
	select {
	case r.room <- struct{}{}:
	default:
	}
	return h, nil
}

// Next implements feed.Reader.
func (r *reader) Next() (feed.Step, error) {
	for {
		for len(r.batch) > 0 {
			if step, ok, err := r.step(&r.batch[0]); ok || err != nil {
				return step, err
			}
		}
		h, err := r.take()
		if err != nil {
			return feed.Step{}, fmt.Errorf("the stream cannot be read on: %w", err)
		}
		if h == nil {
			return feed.Step{Upto: r.upto()}, nil
		}
		r.batch, r.following = h.records, h.follows
	}
}

// upto is the sequence up to which everything was given.
func (r *reader) upto() uint64 {
	if !r.following {
		return 0
	}
	return max(r.next, 1) - 1
}

// step gives a record, or what is missing before it; false: it is passed over.
func (r *reader) step(rec *cutover.Record) (step feed.Step, ok bool, err error) {
	if r.following {
		gap, err := r.missing(rec.Seq)
		if gap.Missing > 0 || err != nil {
			return gap, true, err
		}
		r.next = rec.Seq + 1
	}
	r.batch = r.batch[1:]
	if !r.wanted(rec.Subject) {
		return feed.Step{}, false, nil
	}
	return feed.Step{Message: message(rec), Upto: rec.Seq}, true, nil
}

// missing tells what is missing before a sequence. With filters, of which nobody knows what they matched, that is only
// what the stream has left behind at its beginning.
func (r *reader) missing(to uint64) (feed.Step, error) {
	from := max(r.next, r.told)
	if from >= to {
		return feed.Step{}, nil
	}
	gone := to - 1
	if len(r.filters) > 0 {
		st, err := r.s.State(r.v.ctx, false)
		if err != nil {
			return feed.Step{}, r.v.problem(err)
		}
		gone = min(gone, max(st.FirstSeq, 1)-1)
	}
	if gone < from {
		return feed.Step{}, nil
	}
	r.next = gone + 1
	return feed.Step{Missing: from, Upto: gone}, nil
}

func (r *reader) wanted(subject []byte) bool {
	if len(r.filters) == 0 {
		return true
	}
	return slices.ContainsFunc(r.filters, func(f *subjects.Filter) bool { return f.Match(subject) })
}

func message(rec *cutover.Record) *feed.Message {
	return &feed.Message{
		Seq: rec.Seq, Time: time.Unix(0, rec.Time), Subject: rec.Subject, Header: unmarked(rec.Header), Data: rec.Data,
	}
}

// unmarked is a header block without what the gateway has added when it published the message to the servers.
func unmarked(header []byte) []byte {
	if !cutover.Marked(header) {
		return header
	}
	out, kept := make([]byte, 0, len(header)), 0
	for line := range bytes.SplitAfterSeq(header, []byte("\r\n")) {
		name, _, field := bytes.Cut(line, []byte(":"))
		if field && (string(name) == cutover.HeaderOrigin || string(name) == nats.ExpectedLastSeqHdr) {
			continue
		}
		if field {
			kept++
		}
		out = append(out, line...)
	}
	if kept == 0 {
		return nil
	}
	return out
}

var errAnother = errors.New("it is another stream of that name, or was restored from a backup")

// check finds that the stream is not what was read any more.
func (r *reader) check(ctx context.Context) error {
	info, err := r.s.Info(ctx)
	switch {
	case errors.Is(err, cutover.ErrNoStream):
		return r.v.problem(err)
	case err != nil:
		return nil //nolint:nilerr // the servers are not there for the moment, which Follow meets too
	}
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	if !info.Created.Equal(r.created) || info.State.LastSeq < seen {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, errAnother)
	}
	return nil
}

// Wake implements feed.Reader.
func (r *reader) Wake() <-chan struct{} { return r.wake }

// Position implements feed.Reader.
func (r *reader) Position() (uint64, bool) {
	if !r.following || r.next > r.last+1 {
		return 0, false
	}
	return max(r.next, 1) - 1, true
}

// Last implements feed.Reader.
func (r *reader) Last() uint64 { return r.last }

// Close implements feed.Reader.
func (r *reader) Close() {
	r.end()
	for _, sub := range r.subs {
		_ = sub.Unsubscribe() // the connection may have ended
	}
	r.ended.Wait()
}
