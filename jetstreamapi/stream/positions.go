package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// Position is how far a source was copied.
type Position struct {
	Seq      uint64 `json:"seq"`
	Identity string `json:"identity,omitempty"` // of the origin; empty if it is not known
}

// positions remembers how far each source was copied, by index name. The messages tell it, too, but not once they are
// gone: a work queue would get again what it has done.
//
// Two entries go to the state log for each batch, both under the stream's lock: before it, where its messages will
// begin; after it, the new position. A deletion of one of them comes later, so whoever finds the first entry alone
// after a crash finds the position in the messages behind it. The stream's lock guards it.
type positions struct {
	log   *storage.StateLog // nil: the stream has no sources
	of    map[string]Position
	stale bool // the state log does not have all of it
}

// positionEntry is an entry of the state log.
type positionEntry struct {
	Begin uint64              `json:"begin,omitempty"` // a batch is stored from this sequence on
	Moved map[string]Position `json:"moved,omitempty"` // a checkpoint has all
}

// MaxCopies is the most messages that one batch of copies may have.
const MaxCopies = 256

// maxPositionChanges is when the state log is rewritten.
const maxPositionChanges = 1024

// load reads the state log, and returns where an unfinished batch begins; 0: there is none.
func (p *positions) load() (begin uint64, err error) {
	p.of = make(map[string]Position)
	if p.log == nil {
		return 0, nil
	}
	err = p.log.Load(func(entry []byte, checkpoint bool) error {
		var e positionEntry
		if err := json.Unmarshal(entry, &e); err != nil {
			return fmt.Errorf("positions of sources: %w", err)
		}
		if checkpoint {
			clear(p.of)
		}
		maps.Copy(p.of, e.Moved)
		begin = e.Begin
		return nil
	})
	return begin, err
}

// begin notes that a batch is about to be stored from seq on.
func (p *positions) begin(seq uint64) error {
	if p.stale {
		if err := p.checkpoint(); err != nil {
			return err
		}
	}
	return p.append(&positionEntry{Begin: seq})
}

// move remembers a new position.
func (p *positions) move(index string, to Position) error {
	p.of[index] = to
	p.stale = true
	if n, _ := p.log.Changes(); n >= maxPositionChanges {
		return p.checkpoint()
	}
	err := p.append(&positionEntry{Moved: map[string]Position{index: to}})
	p.stale = err != nil
	return err
}

func (p *positions) append(e *positionEntry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.log.Append(b, nil)
}

func (p *positions) checkpoint() error {
	b, err := json.Marshal(&positionEntry{Moved: p.of})
	if err == nil {
		err = p.log.Checkpoint(b, nil)
	}
	p.stale = err != nil
	return err
}

// keep forgets the sources that are no more.
func (p *positions) keep(sources []*server.StreamSource) error {
	still := make(map[string]bool, len(sources))
	for _, s := range sources {
		still[IndexName(s)] = true
	}
	before := len(p.of)
	maps.DeleteFunc(p.of, func(index string, _ Position) bool { return !still[index] })
	if len(p.of) == before || p.log == nil {
		return nil
	}
	return p.checkpoint()
}

// recoverPositions takes over what the state log holds, and looks at the messages of a batch that a crash cut off.
func (s *Stream) recoverPositions(set *settings) error {
	s.positions.log = s.o.Positions
	begin, err := s.positions.load()
	if err != nil || begin == 0 {
		return err
	}
	for seq := begin; seq < begin+MaxCopies; seq++ {
		r, err := s.log.Get(seq)
		if errors.Is(err, storage.ErrEOF) {
			break
		}
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if src, at, ok := copiedBy(set.cfg.Sources, &r); ok {
			s.positions.of[IndexName(src)] = at
		}
	}
	_ = s.positions.checkpoint() // tried again before the next batch
	return nil
}

// copiedBy returns the source a message was copied by, and its place there.
func copiedBy(sources []*server.StreamSource, r *storage.Record) (*server.StreamSource, Position, bool) {
	value := jsapi.HeaderValue(r.Header, jsapi.HeaderStreamSource)
	if len(value) == 0 {
		return nil, Position{}, false
	}
	stream, index, at, ok := parseSourceHeader(string(value))
	if !ok {
		return nil, Position{}, false
	}
	for _, src := range sources {
		if belongsTo(stream, index, src) {
			return src, at, true
		}
	}
	return nil, Position{}, false
}

// Position returns how far a source was copied. Where that is not remembered, because the source is new or the stream
// came out of a backup, it looks for the newest message that came by it: that may take long. False: there is none.
func (s *Stream) Position(src *server.StreamSource) (Position, bool, error) {
	s.mu.Lock()
	at, ok := s.positions.of[IndexName(src)]
	s.mu.Unlock()
	if ok {
		return at, true, nil
	}
	filter, upTo := destinationOf(src), uint64(0)
	for {
		r, err := s.log.Last(filter, upTo)
		if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrEOF) {
			return Position{}, false, nil
		}
		if err != nil {
			return Position{}, false, err
		}
		if _, at, ok := copiedBy([]*server.StreamSource{src}, &r); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.positions.of[IndexName(src)] = at
			return at, true, nil
		}
		if r.Seq == 1 {
			return Position{}, false, nil
		}
		upTo = r.Seq - 1
	}
}

// destinationOf returns a filter of what the source's messages are stored under, nil where it cannot be told.
func destinationOf(src *server.StreamSource) storage.Filter {
	if len(src.SubjectTransforms) == 0 {
		if f, err := compileFilter(src.FilterSubject); err == nil {
			return f
		}
	}
	return nil
}

// StoredPosition returns how far a source was copied, as far as that is known.
func (s *Stream) StoredPosition(src *server.StreamSource) (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.positions.of[IndexName(src)]
	return at, ok
}

// TrackSources gives the stream the state log for its sources' positions, if it has none yet.
func (s *Stream) TrackSources(log *storage.StateLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.positions.log == nil {
		s.positions.log = log
	}
}
