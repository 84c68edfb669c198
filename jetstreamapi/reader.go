package jetstreamapi

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/storage"
)

// Reader reads a stream beside its consumers: it acknowledges nothing, removes nothing, and the stream keeps nothing
// for it. It gives each visible message that matches, in order of sequence, and says where messages are missing. One
// goroutine at a time uses it; between two calls it costs nothing.
type Reader struct {
	log    *storage.Log
	cursor *storage.Cursor
	skip   []uint64 // last_per_subject: what comes before the cursor's first
	// next is the first sequence of which nothing was told yet; told is where it must be told what is missing from.
	next, told uint64
	filtered   bool
	held       *storage.Record // read, but something missing was told first

	wake  chan struct{}
	ended atomic.Pointer[error]
	stop  func()
}

// Step is what a Reader gives.
type Step struct {
	// Record is the next message; nil if there is none now.
	Record *storage.Record
	// Missing is the first of the sequences up to Upto that are not in the stream (any more), 0 without such. Only with
	// a nil Record. A Reader with filters cannot know whether they matched.
	Missing uint64
	// Upto is the sequence up to which everything was given: that of the message if there is one.
	Upto uint64
}

// maxReadFirst bounds the messages of last_per_subject, of which a Reader keeps the sequences.
const maxReadFirst = 1 << 20

// ErrTooMany is a last_per_subject of too many subjects.
var ErrTooMany = errors.New("too many subjects")

// StreamSubjects returns the subjects a stream takes, none if it takes messages from other streams as well: then it may
// hold any. Errors as of Read.
func (s *Service) StreamSubjects(accountName, name string) ([]string, error) {
	e, err := s.readable(accountName, name)
	if err != nil {
		return nil, err
	}
	cfg := e.config()
	if cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.SubjectTransform != nil {
		return nil, nil
	}
	return cfg.Subjects, nil
}

// Read returns a Reader of a stream that begins, and filters, as cfg says. The error wraps ErrUnknown or ErrTooMany, or
// says why the stream does not serve now. Close must be called.
func (s *Service) Read(accountName, name string, cfg *server.ConsumerConfig) (*Reader, error) {
	e, err := s.readable(accountName, name)
	if err != nil {
		return nil, err
	}
	filters, err := consumer.CompileFilters(filtersOf(cfg))
	if err != nil {
		return nil, err
	}
	r := &Reader{log: e.log, filtered: len(filters) > 0, wake: make(chan struct{}, 1)}
	r.stop = e.stream.Watch(r.woken) // before it looks where to begin: nothing that comes is missed
	at := consumer.SelectStart(e.log, cfg, e.config().MaxMsgsPer, filters)
	if len(at.Skip) > maxReadFirst {
		r.Close()
		return nil, fmt.Errorf("%w: last_per_subject would begin with %d messages, and %d are the most: "+
			"give filters that match fewer subjects", ErrTooMany, len(at.Skip), maxReadFirst)
	}
	r.skip, r.next, r.told = at.Skip, at.Cursor, e.log.Visible()+1
	if cfg.DeliverPolicy == server.DeliverByStartSequence { // what is missing from there on was asked for
		r.next, r.told = cfg.OptStartSeq, cfg.OptStartSeq
	}
	r.cursor = e.log.NewCursor(r.next, filters)
	return r, nil
}

// readable returns a stream that serves.
func (s *Service) readable(accountName, name string) (*streamEntry, error) {
	a := s.account(accountName)
	if a == nil {
		return nil, fmt.Errorf("account %q with JetStream: %w", accountName, ErrUnknown)
	}
	e, apiErr := a.stream(name)
	switch {
	case apiErr == nil:
		return e, nil
	case apiErr.ErrCode == server.NewJSStreamNotFoundError().ErrCode:
		return nil, fmt.Errorf("stream %q of account %q: %w", name, accountName, ErrUnknown)
	}
	return nil, errors.New(apiErr.Description)
}

// woken implements stream.Watch's wake.
func (r *Reader) woken(err error) {
	if err != nil {
		r.ended.CompareAndSwap(nil, &err)
	}
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// Wake is sent to when Next may have more to give, or an error.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

// Position returns the sequence up to which everything was given, or is not asked for. There is none as long as the
// first messages of last_per_subject are not all given, and when the Reader begins beyond the end of the stream.
func (r *Reader) Position() (seq uint64, ok bool) {
	if len(r.skip) > 0 || r.next > r.log.Visible()+1 {
		return 0, false
	}
	return max(r.next, 1) - 1, true
}

// Last returns the newest visible sequence of the stream, 0 if it never had a message.
func (r *Reader) Last() uint64 { return r.log.Visible() }

// Close ends the Reader.
func (r *Reader) Close() { r.stop() }

// Next returns what comes next. The error says that the stream was stopped or its directory failed, or that it could
// not be read.
func (r *Reader) Next() (Step, error) {
	if err := r.ended.Load(); err != nil {
		return Step{}, *err
	}
	if rec, err := r.first(); rec != nil || err != nil {
		return given(rec), err
	}
	if rec := r.held; rec != nil {
		r.held, r.next = nil, rec.Seq+1
		return given(rec), nil
	}
	visible := r.log.Visible() // before the cursor looks: it finds everything up to here
	rec, err := r.cursor.Next()
	switch {
	case errors.Is(err, storage.ErrEOF):
		return r.reach(visible+1, nil), nil
	case err != nil:
		return Step{}, err
	}
	return r.reach(rec.Seq, &rec), nil
}

func given(rec *storage.Record) Step {
	if rec == nil {
		return Step{}
	}
	return Step{Record: rec, Upto: rec.Seq}
}

// first returns the next message of those that last_per_subject begins with.
func (r *Reader) first() (*storage.Record, error) {
	for len(r.skip) > 0 {
		rec, err := r.log.Get(r.skip[0])
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
		r.skip = r.skip[1:]
		if err == nil {
			return &rec, nil
		}
		// It left the stream meanwhile. If another took its place, that follows.
	}
	return nil, nil //nolint:nilnil // there is none
}

// reach tells what is missing before to, or gives rec, which is at to; nil: there is no message up to to.
func (r *Reader) reach(to uint64, rec *storage.Record) Step {
	if from := max(r.next, r.told); from < to {
		gone := to - 1
		if r.filtered {
			gone = min(gone, r.log.VisibleState().FirstSeq-1)
		}
		if gone >= from {
			r.held, r.next = rec, gone+1
			return Step{Missing: from, Upto: gone}
		}
	}
	if rec == nil {
		r.next = max(r.next, to)
		return Step{Upto: r.next - 1}
	}
	r.next = rec.Seq + 1
	return given(rec)
}
