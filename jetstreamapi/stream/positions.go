package stream

import (
	"context"
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
// gone: a work queue would get again what it has done. So a position is written in the same batch as its message, and a
// crash leaves both or none. The stream's lock guards it.
type positions struct {
	log   *storage.StateLog // nil: the stream has no sources
	of    map[string]Position
	batch storage.Batch // scratch
}

// positionEntry is an entry of the state log: sources that moved, or, in a checkpoint, all of them.
type positionEntry map[string]Position

// MaxCopies is the most messages that one batch of copies may have.
const MaxCopies = 256

// maxPositionChanges is when the state log is rewritten.
const maxPositionChanges = 4096

// load reads the state log.
func (p *positions) load() error {
	p.of = make(map[string]Position)
	if p.log == nil {
		return nil
	}
	return p.log.Load(func(entry []byte, checkpoint bool) error {
		var e positionEntry
		if err := json.Unmarshal(entry, &e); err != nil {
			return fmt.Errorf("positions of sources: %w", err)
		}
		if checkpoint {
			clear(p.of)
		}
		maps.Copy(p.of, e)
		return nil
	})
}

// step is the way of a source's position over one message.
type step struct {
	index string
	to    Position
}

// appendMoving appends a message and, with it, moves the position of the source it came by.
func (p *positions) appendMoving(log *storage.Log, r *storage.Record, by *step) error {
	entry, err := json.Marshal(positionEntry{by.index: by.to})
	if err != nil {
		return err
	}
	p.batch.Reset()
	p.batch.Append(log, r)
	p.batch.Change(p.log, entry)
	if err := p.batch.Commit(nil); err != nil {
		return err
	}
	p.of[by.index] = by.to
	return nil
}

// pass moves a position over messages that were not stored, and rewrites the state log when that is due.
func (p *positions) pass(index string, to Position) error {
	if p.of[index] == to {
		if n, _ := p.log.Changes(); n >= maxPositionChanges {
			return p.checkpoint()
		}
		return nil
	}
	entry, err := json.Marshal(positionEntry{index: to})
	if err != nil {
		return err
	}
	if err := p.log.Append(entry, nil); err != nil {
		return err
	}
	p.of[index] = to
	return nil
}

func (p *positions) checkpoint() error {
	b, err := json.Marshal(positionEntry(p.of))
	if err != nil {
		return err
	}
	return p.log.Checkpoint(b, nil)
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
func (s *Stream) Position(ctx context.Context, src *server.StreamSource) (Position, bool, error) {
	s.mu.Lock()
	at, ok := s.positions.of[IndexName(src)]
	s.mu.Unlock()
	if ok {
		return at, true, nil
	}
	filter, upTo := destinationOf(src), uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return Position{}, false, err
		}
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
