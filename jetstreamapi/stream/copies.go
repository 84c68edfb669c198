package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// Copy is a message of another stream on its way into this one. Its slices are borrowed.
type Copy struct {
	Seq     uint64 // in the origin
	Time    int64  // Unix nanoseconds, in the origin
	Subject []byte
	Header  []byte
	Data    []byte
}

// Lineage says by what source copies come.
type Lineage struct {
	Index    string // its index name (see IndexName)
	Identity string // of the origin; empty if it is not known
	Map      Mapper // its transforms
}

// Mapper returns the subject under which a message of an origin is stored.
type Mapper func(subject []byte) []byte

// NewMapper makes a Mapper of a mirror's or source's transforms, of which the first that applies counts.
func NewMapper(list []server.SubjectTransformConfig) (Mapper, error) {
	var maps []mapping
	for _, t := range list {
		m, err := server.NewSubjectTransform(t.Source, t.Destination)
		if err != nil {
			return nil, fmt.Errorf("subject transform from %q to %q: %w", t.Source, t.Destination, err)
		}
		if m != nil {
			maps = append(maps, m)
		}
	}
	return func(subject []byte) []byte {
		for _, m := range maps {
			if to, err := m.Match(string(subject)); err == nil {
				return []byte(to)
			}
		}
		return subject
	}, nil
}

// ErrNotMirror says that the stream is no mirror any more, or no more has the source.
var ErrNotMirror = errors.New("the stream does not copy from there any more")

// AddMirrored stores messages of the stream this one mirrors, with their sequences and times; a sequence that is
// missing between two of them counts as deleted. Those the stream has already are passed over. It returns how many of
// the batch it is done with, and why not with the next: a *server.ApiError where a publisher would have got that. stall
// is as in bus.Sink.
func (s *Stream) AddMirrored(batch []Copy, mapper Mapper) (done int, stall <-chan struct{}, err error) {
	s.mu.Lock()
	set := s.settings.Load()
	switch {
	case s.head.closed:
		err = errStopped
	case set.cfg.Mirror == nil:
		err = ErrNotMirror
	default:
		done, err = s.addMirrored(set, batch, mapper)
	}
	return done, s.settled(set), err
}

func (s *Stream) addMirrored(set *settings, batch []Copy, mapper Mapper) (done int, err error) {
	for i := range batch {
		c := &batch[i]
		if c.Seq <= s.head.lastSeq {
			continue
		}
		s.head.lastTime = max(s.head.lastTime, c.Time)
		in := incoming{subject: mapper(c.Subject), header: c.Header, data: c.Data, now: s.head.lastTime, seq: c.Seq}
		if err := s.addCopy(set, &in); err != nil {
			return i, err
		}
	}
	return len(batch), nil
}

// settled ends the addition of a batch: it trims, and gives the lock back.
func (s *Stream) settled(set *settings) (stall <-chan struct{}) {
	s.trim(set)
	ready := s.answers.ready(s.log.Visible()) // among copies: those that are republished
	stall = s.answers.stall()
	closed := s.head.closed
	s.mu.Unlock()
	if ready {
		s.kick()
	}
	if ready && closed && s.flusher.ended() {
		go s.flushLate()
	}
	if s.o.Stall != nil {
		if full := s.o.Stall(); full != nil {
			return full
		}
	}
	return stall
}

// AddSourced is AddMirrored for messages that come by a source, at most MaxCopies at a time: they get sequences and
// times of their own, and a header that says where they come from. The position of the source moves with them.
func (s *Stream) AddSourced(batch []Copy, from *Lineage) (done int, stall <-chan struct{}, err error) {
	s.loadCountsOf(batch, from)
	s.mu.Lock()
	set := s.settings.Load()
	switch {
	case s.head.closed:
		err = errStopped
	case s.positions.log == nil || !hasSource(set, from.Index):
		err = ErrNotMirror
	default:
		done, err = s.addSourced(set, batch, from)
	}
	return done, s.settled(set), err
}

func hasSource(set *settings, index string) bool {
	for _, src := range set.cfg.Sources {
		if IndexName(src) == index {
			return true
		}
	}
	return false
}

func (s *Stream) addSourced(set *settings, batch []Copy, from *Lineage) (done int, err error) {
	now, at := s.stamp(), s.positions.of[from.Index]
	same := at.Identity == "" || from.Identity == "" || at.Identity == from.Identity
	for done < len(batch) && err == nil {
		c := &batch[done]
		if same && c.Seq <= at.Seq { // it is here already
			done++
			continue
		}
		to := Position{Seq: c.Seq, Identity: from.Identity}
		header := jsapi.AddHeader(withoutOrigin(c.Header), jsapi.HeaderStreamSource,
			sourceHeader(from.Index, c.Seq, c.Subject, from.Identity))
		in := incoming{subject: from.Map(c.Subject), header: header, data: c.Data, now: now, by: &step{from.Index, to}}
		if err = s.addCopy(set, &in); err == nil {
			at, same = to, true
			done++
		}
	}
	return done, errors.Join(err, s.positions.pass(from.Index, at))
}

// withoutOrigin returns a header without what another stream's sources have put there.
func withoutOrigin(header []byte) []byte {
	if !jsapi.HasHeader(header, jsapi.HeaderStreamSource) {
		return header
	}
	return jsapi.WithoutHeaders(header, func(name []byte) bool { return string(name) == jsapi.HeaderStreamSource })
}

// addCopy stores one message.
func (s *Stream) addCopy(set *settings, in *incoming) error {
	in.subject, in.header = set.mapped(in.subject), storedCopy(in.header)
	if len(in.header) > 0 {
		in.named.Parse(in.header)
	}
	if s.head.trimDue {
		s.trim(set)
	}
	s.dedupe.expire(in.now)
	v := set.admitCopy(s, in)
	before := s.head.lastSeq
	switch v.kind {
	case verdictStore:
		s.head.refusal = nil
		s.store(set, in, v.rollup, in.now)
	case verdictSkip:
		s.head.refusal = nil
		s.skip(set, in, v.rollup, in.now)
	case verdictDuplicate:
		s.metrics.duplicates.Add(1)
		return nil
	case verdictRefuse:
		return v.err
	}
	if s.head.lastSeq == before {
		return s.head.refusal
	}
	return nil
}

// storedCopy returns the header as a copy keeps it: what a publisher expected of the origin is not asked of this
// stream, and a batch is one no more.
func storedCopy(header []byte) []byte {
	if !strings.Contains(string(header), "Nats-Expected-") && !strings.Contains(string(header), "Nats-Batch-") {
		return header
	}
	return jsapi.WithoutHeaders(header, func(name []byte) bool {
		return strings.HasPrefix(string(name), "Nats-Expected-") || strings.HasPrefix(string(name), "Nats-Batch-")
	})
}

// admitCopy is admit for a message that another stream has admitted. Unlike a publisher's, it may carry headers of
// features that this stream does not have: they are kept, and do nothing.
func (c *settings) admitCopy(f facts, in *incoming) verdict {
	if err := c.checkForm(in); err != nil {
		return refuse(err)
	}
	rollup := rollupNone
	if len(in.header) > 0 {
		if id := in.named.MsgID; len(id) > 0 && c.cfg.Mirror == nil {
			if seq := f.duplicateOf(id); seq > 0 {
				return verdict{kind: verdictDuplicate, seq: seq}
			}
		}
		if c.cfg.AllowRollup && !c.cfg.DenyPurge {
			v := c.checkRollup(in.named.Rollup)
			if v.err != nil {
				return v
			}
			rollup = v.rollup
		}
	}
	if c.cfg.AllowMsgCounter {
		if err := c.countSourced(f, in); err != nil {
			return refuse(err)
		}
		if err := c.checkSize(in); err != nil {
			return refuse(err)
		}
	}
	if c.unwanted(f, in) {
		return verdict{kind: verdictSkip, rollup: rollup}
	}
	return verdict{kind: verdictStore, rollup: rollup}
}

// StartAt makes an empty mirror begin at first, and one that ends before first-1 end there: what lies between is not in
// the origin any more.
func (s *Stream) StartAt(first uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.head.closed:
		return errStopped
	case first == 0 || s.head.lastSeq >= first-1:
		return nil
	}
	if s.log.State().Messages == 0 {
		if _, err := s.log.Purge(nil, first, 0, nil); err != nil {
			return err
		}
		s.head.purged = true
		s.head.lastSeq = max(s.head.lastSeq, s.log.State().LastSeq)
		return nil
	}
	// The log ends with a message: one that is deleted at once.
	s.head.record = storage.Record{Seq: first - 1, Time: s.head.lastTime, Key: []byte("deleted")}
	if err := s.log.Append(&s.head.record, nil); err != nil {
		return err
	}
	s.head.lastSeq = first - 1
	s.remove(first - 1)
	return nil
}
