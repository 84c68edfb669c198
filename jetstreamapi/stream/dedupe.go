package stream

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// dedupe remembers the message ids of the last window. It holds one entry for each message with an id inside the
// window; entries expire in order, so the cost of that is spread over the messages. The stream's lock guards it.
type dedupe struct {
	window time.Duration // 0: off
	seqs   map[string]uint64
	queue  []seen // by time
	first  int    // of the entries not yet expired
	chunk  []byte // where the bytes of new ids go

	owes    atomic.Bool // owed is not 0, for who has not the lock
	owed    uint64      // not 0: what the log has up to this sequence is not in the window yet
	loading *dedupeLoad // on its way; nil: it is not
}

// seen is one remembered id.
type seen struct {
	id  string
	at  int64 // Unix nanoseconds
	seq uint64
}

// idChunk is what one allocation holds of the bytes of ids. A chunk is freed when its last id has expired.
const idChunk = 16 << 10

// find returns the sequence of the message that had this id, or 0.
func (d *dedupe) find(id []byte) uint64 { return d.seqs[string(id)] }

// remember adds an id. It is a no-op when the window is off.
func (d *dedupe) remember(id []byte, seq uint64, at int64) {
	if d.window <= 0 {
		return
	}
	if d.seqs == nil {
		d.seqs = make(map[string]uint64)
	}
	text := d.keep(id)
	d.seqs[text] = seq
	d.queue = append(d.queue, seen{id: text, at: at, seq: seq})
}

// keep returns a copy of id as a string, many of them in one allocation.
func (d *dedupe) keep(id []byte) string {
	if len(id) > idChunk/8 {
		return string(id)
	}
	if cap(d.chunk)-len(d.chunk) < len(id) {
		d.chunk = make([]byte, 0, idChunk)
	}
	from := len(d.chunk)
	d.chunk = append(d.chunk, id...)
	kept := d.chunk[from:len(d.chunk):len(d.chunk)]
	return unsafe.String(unsafe.SliceData(kept), len(kept)) // these bytes are never written again
}

// expire forgets what is older than the window.
func (d *dedupe) expire(now int64) {
	for d.first < len(d.queue) && now-d.queue[d.first].at >= int64(d.window) {
		old := &d.queue[d.first]
		if d.seqs[old.id] == old.seq {
			delete(d.seqs, old.id)
		}
		*old = seen{}
		d.first++
	}
	switch {
	case d.first == 0:
	case d.first == len(d.queue):
		d.queue, d.first = d.queue[:0], 0
	case d.first > len(d.queue)/2:
		n := copy(d.queue, d.queue[d.first:])
		clear(d.queue[n:])
		d.queue, d.first = d.queue[:n], 0
	}
}

// oldest returns the time of the first entry to expire; false if there is none.
func (d *dedupe) oldest() (at int64, ok bool) {
	if d.first == len(d.queue) {
		return 0, false
	}
	return d.queue[d.first].at, true
}

// dedupeLoad reads the window back from the log, once, for whoever asks first.
type dedupeLoad struct {
	upTo  uint64
	found dedupe
	begun atomic.Bool
	stop  atomic.Bool   // nobody asks any more
	done  chan struct{} // closed when found is there
}

// loadSlots bounds how many windows are read at a time, ahead of being asked for.
var loadSlots = make(chan struct{}, 2) //nolint:gochecknoglobals // of the process: it is about the disk

// recoverDedupe takes the last message id from the log. The window is read from it when the first message with an id
// asks: most streams have none, and a start must not take as long as a window has messages. Where the last message has
// an id that will be soon, so it is read at once, without the lock.
func (s *Stream) recoverDedupe() error {
	last, err := s.log.Get(s.head.lastSeq)
	switch {
	case err == nil:
		s.head.lastMsgID = append(s.head.lastMsgID[:0], jsapi.HeaderValue(last.Header, jsapi.HeaderMsgID)...)
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrEOF):
		return err
	}
	d := &s.dedupe
	d.owed = s.head.lastSeq
	d.owes.Store(d.owed != 0)
	switch {
	case len(s.o.Dedupe) > 0:
		s.loadDedupe()
		d.merge(s.o.Dedupe)
		s.o.Dedupe = nil
		s.dedupeDue(time.Now().UnixNano())
	case len(s.head.lastMsgID) > 0 && d.window > 0:
		d.loading = s.newDedupeLoad()
		s.upkeep.running.Add(1)
		go s.loadAhead(d.loading)
	}
	return nil
}

func (s *Stream) newDedupeLoad() *dedupeLoad {
	return &dedupeLoad{upTo: s.dedupe.owed, found: dedupe{window: s.dedupe.window}, done: make(chan struct{})}
}

// loadAhead reads the window before it is asked for.
func (s *Stream) loadAhead(l *dedupeLoad) {
	defer s.upkeep.running.Done()
	loadSlots <- struct{}{}
	l.read(s.log)
	<-loadSlots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeDedupe(l)
}

// read returns when found has what the log has.
func (l *dedupeLoad) read(log *storage.Log) {
	if !l.begun.CompareAndSwap(false, true) {
		<-l.done
		return
	}
	l.found.load(log, l.upTo, &l.stop)
	close(l.done)
}

// awaitDedupe waits, before the lock is taken, until the window is there that the ids of a batch are looked up in.
func (s *Stream) awaitDedupe(batch []bus.Delivery) {
	if !s.dedupe.owes.Load() || !slices.ContainsFunc(batch, func(d bus.Delivery) bool {
		return len(d.Msg.Header) > 0 && len(jsapi.HeaderValue(d.Msg.Header, jsapi.HeaderMsgID)) > 0
	}) {
		return
	}
	s.mu.Lock()
	if s.dedupe.owed == 0 || s.dedupe.window <= 0 || s.head.closed {
		s.mu.Unlock()
		return
	}
	if s.dedupe.loading == nil {
		s.dedupe.loading = s.newDedupeLoad()
	}
	l := s.dedupe.loading
	s.upkeep.running.Add(1)
	s.mu.Unlock()
	defer s.upkeep.running.Done()
	l.read(s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeDedupe(l)
}

// loadDedupe fills the window with what the log had when the stream was opened. The lock is held.
func (s *Stream) loadDedupe() {
	l := s.dedupe.loading
	if l == nil {
		l = s.newDedupeLoad()
	}
	if s.dedupe.window > 0 {
		l.read(s.log)
	}
	s.takeDedupe(l)
}

// takeDedupe puts what was read before what was remembered since. The lock is held.
func (s *Stream) takeDedupe(l *dedupeLoad) {
	d := &s.dedupe
	if d.owed == 0 {
		return
	}
	d.owed, d.loading = 0, nil
	d.owes.Store(false)
	if d.window <= 0 {
		return
	}
	since := d.queue[d.first:]
	d.seqs, d.queue, d.first = l.found.seqs, append(l.found.queue, since...), 0
	for _, newer := range since {
		if d.seqs == nil {
			d.seqs = make(map[string]uint64)
		}
		d.seqs[newer.id] = newer.seq
	}
}

// Remembered is a message id in the dedup window.
type Remembered struct {
	ID   string
	Seq  uint64
	Time int64 // Unix nanoseconds
}

// merge adds what is not known yet.
func (d *dedupe) merge(more []Remembered) {
	for _, r := range more {
		if _, known := d.seqs[r.ID]; !known {
			d.remember([]byte(r.ID), r.Seq, r.Time)
		}
	}
	slices.SortStableFunc(d.queue[d.first:], func(a, b seen) int { return cmp.Compare(a.at, b.at) })
}

// list returns the window, oldest first.
func (d *dedupe) list() []Remembered {
	out := make([]Remembered, 0, len(d.queue)-d.first)
	for _, e := range d.queue[d.first:] {
		if d.seqs[e.id] == e.seq {
			out = append(out, Remembered{ID: strings.Clone(e.id), Seq: e.seq, Time: e.at})
		}
	}
	return out
}

// Dedupe returns what the dedup window remembers, oldest first.
func (s *Stream) Dedupe() []Remembered {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dedupe.owed > 0 {
		s.loadDedupe()
	}
	s.dedupe.expire(time.Now().UnixNano())
	return s.dedupe.list()
}

// ReadDedupe returns what the dedup window of a stream over log would remember, with more, oldest first.
func ReadDedupe(log *storage.Log, window time.Duration, more []Remembered) []Remembered {
	d := dedupe{window: window}
	d.load(log, math.MaxUint64, new(atomic.Bool))
	d.merge(more)
	d.expire(time.Now().UnixNano())
	return d.list()
}

// load remembers the ids that log has of the last window, up to a sequence. It ends early when stop is set.
func (d *dedupe) load(log *storage.Log, upTo uint64, stop *atomic.Bool) {
	var named jsapi.PublishHeaders
	since := log.SeqAtTime(time.Now().Add(-d.window).UnixNano())
	// a log that cannot be read takes no messages either
	_ = log.Scan(since, func(r *storage.Record) bool {
		if r.Seq > upTo || stop.Load() {
			return false
		}
		if len(r.Header) > 0 {
			if named.Parse(r.Header); len(named.MsgID) > 0 {
				d.remember(named.MsgID, r.Seq, r.Time)
			}
		}
		return true
	})
}
