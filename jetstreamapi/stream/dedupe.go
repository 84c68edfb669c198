package stream

import (
	"errors"
	"time"
	"unsafe"

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
	owed   uint64 // not 0: what the log has up to this sequence is not in the window yet
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

// recoverDedupe takes the last message id from the log. The window is read from it when the first message with an id
// asks: most streams have none, and a start must not take as long as a window has messages.
func (s *Stream) recoverDedupe() error {
	last, err := s.log.Get(s.head.lastSeq)
	switch {
	case err == nil:
		s.head.lastMsgID = append(s.head.lastMsgID[:0], jsapi.HeaderValue(last.Header, jsapi.HeaderMsgID)...)
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrEOF):
		return err
	}
	s.dedupe.owed = s.head.lastSeq
	return nil
}

// loadDedupe fills the window with what the log had when the stream was opened. The lock is held.
func (s *Stream) loadDedupe() {
	d := &s.dedupe
	upTo := d.owed
	d.owed = 0
	if d.window <= 0 {
		return
	}
	since := d.queue[d.first:] // remembered since, and newer
	d.queue, d.first = nil, 0
	var named jsapi.PublishHeaders
	cursor := s.log.NewCursor(s.log.SeqAtTime(time.Now().Add(-d.window).UnixNano()), nil)
	for {
		r, err := cursor.Next()
		if err != nil || r.Seq > upTo {
			break // a log that cannot be read takes no messages either
		}
		if len(r.Header) == 0 {
			continue
		}
		if named.Parse(r.Header); len(named.MsgID) > 0 {
			if _, newer := d.seqs[string(named.MsgID)]; !newer {
				d.remember(named.MsgID, r.Seq, r.Time)
			}
		}
	}
	d.queue = append(d.queue, since...)
}
