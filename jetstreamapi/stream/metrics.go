package stream

import (
	"maps"
	"sync"
	"sync/atomic"
)

// metrics are the stream's counters.
type metrics struct {
	stored, skipped, duplicates, unanswered atomic.Uint64

	mu      sync.Mutex
	refused map[uint16]uint64
}

func (m *metrics) refuse(code uint16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused == nil {
		m.refused = make(map[uint16]uint64)
	}
	m.refused[code]++
}

// Counters are what a stream counted since it was opened.
type Counters struct {
	Stored     uint64            // messages stored and acknowledged
	Skipped    uint64            // messages acknowledged and not kept, for want of interest
	Duplicates uint64            // messages with an id of the dedup window
	Unanswered uint64            // messages dropped because the queue of answers was full
	Refused    map[uint16]uint64 // messages refused, by err_code
}

// Counters returns the counters.
func (s *Stream) Counters() Counters {
	m := &s.metrics
	c := Counters{
		Stored:     m.stored.Load(),
		Skipped:    m.skipped.Load(),
		Duplicates: m.duplicates.Load(),
		Unanswered: m.unanswered.Load(),
		Refused:    make(map[uint16]uint64),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(c.Refused, m.refused)
	return c
}
