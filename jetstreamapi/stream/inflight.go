package stream

import (
	"sort"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// inflight remembers the messages that the log does not show yet, for the few questions about the head that the log
// answers only for what is visible. It is off until a stream needs it, so that the others do not pay for it. The
// stream's lock guards it.
type inflight struct {
	on    bool
	since uint64 // head when it was turned on: what came before is not in the list
	list  []flying
	first int
}

// flying is a message on its way to the disk.
type flying struct {
	seq, size uint64
	subject   string
}

// start turns it on.
func (f *inflight) start(head uint64) {
	if !f.on {
		f.on, f.since = true, head
	}
}

// complete reports whether it knows all messages above visible.
func (f *inflight) complete(visible uint64) bool { return f.on && f.since <= visible }

// note adds a message, and forgets those that are visible by now.
func (f *inflight) note(seq, size uint64, subject []byte, visible uint64) {
	if !f.on {
		return
	}
	for f.first < len(f.list) && f.list[f.first].seq <= visible {
		f.list[f.first] = flying{}
		f.first++
	}
	if f.first > len(f.list)/2 {
		n := copy(f.list, f.list[f.first:])
		clear(f.list[n:])
		f.list, f.first = f.list[:n], 0
	}
	f.list = append(f.list, flying{seq: seq, size: size, subject: string(subject)})
}

// size returns the size of a message; false if it is not in flight.
func (f *inflight) size(seq uint64) (uint64, bool) {
	list := f.list[f.first:]
	i := sort.Search(len(list), func(i int) bool { return list[i].seq >= seq })
	if i == len(list) || list[i].seq != seq {
		return 0, false
	}
	return list[i].size, true
}

// lastMatching implements facts.
func (s *Stream) lastMatching(filter []byte) (seq uint64, known bool) {
	s.inflight.start(s.head.lastSeq)
	if visible := s.log.Visible(); visible < s.head.lastSeq && !s.inflight.complete(visible) {
		return 0, false
	}
	f, err := subjects.Compile(string(filter))
	if err != nil {
		return 0, true
	}
	s.log.EachKey(f, func(key []byte, _ storage.KeyState) bool {
		seq = max(seq, s.log.Key(key).Last)
		return true
	})
	for _, m := range s.inflight.list[s.inflight.first:] {
		if key := []byte(m.subject); m.seq > seq && f.Match(key) {
			seq = max(seq, s.log.Key(key).Last)
		}
	}
	return seq, true
}

// sizeAt implements facts.
func (s *Stream) sizeAt(seq uint64) uint64 {
	if size, ok := s.inflight.size(seq); ok {
		return size
	}
	r, err := s.log.Get(seq)
	if err != nil {
		return 0
	}
	return s.settings.Load().sizeOf(len(r.Key), len(r.Header), len(r.Data))
}
