package stream

import (
	"sync/atomic"
	"time"
)

// sample measures how long one publish at a time takes until its ack may leave. It costs two atomic writes for a batch
// and nothing for a message. begin and settle are called under the stream's lock.
type sample struct {
	seq   atomic.Uint64 // the message measured
	since atomic.Int64  // Unix nanoseconds; 0: none is
}

// begin measures the message that will get seq, unless another one is being measured.
func (p *sample) begin(seq uint64, now int64) {
	if p.since.Load() == 0 {
		p.seq.Store(seq)
		p.since.Store(now)
	}
}

// settle gives up if the message measured was not stored; last is the newest that was.
func (p *sample) settle(last uint64) {
	if p.seq.Load() > last {
		p.since.Store(0)
	}
}

// end tells the time once the message measured is visible.
func (p *sample) end(visible uint64, tell func(time.Duration)) {
	since := p.since.Load()
	if since == 0 || visible < p.seq.Load() {
		return
	}
	p.since.Store(0)
	if tell != nil {
		tell(time.Duration(max(time.Now().UnixNano()-since, 0)))
	}
}
