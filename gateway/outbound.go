package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// Sizes of the buffers in an outbound queue, in bytes: the first is small, so that a quiet connection costs little.
const (
	outMinBuffer = 1 << 10 // a power of two, as the other
	outMaxBuffer = 64 << 10
	// outInPiece is the largest payload that is kept in one buffer; a larger one fills buffers to the brim.
	outInPiece = 4 << 10
	// inlineMax is the most that a publisher writes to a receiver's socket by itself. More is worth waking the writer.
	inlineMax = 4 << 10
)

// outbound is what waits to be sent to a client. Its bound is max bytes: whoever is beyond it is closed.
type outbound struct {
	mu   sync.Mutex
	wake sync.Cond // the writer waits for bytes or the end
	pool *wire.Pool

	chain   [][]byte // full but for the last
	start   int      // size of the first buffer of the next chain
	pending int64    // bytes in chain and on their way to the socket
	max     int64    // bound of pending
	sending bool     // the writer, or who has claimed it, sends what is not in chain any more

	torn    bool        // what is queued ends within a frame from upstream
	later   []byte      // lines and messages of this server's own that wait for the end of that frame
	waiting atomic.Bool // there are such

	reason CloseReason // why the connection ends; empty while it lives
	stall  chan struct{}
}

// The pause of producers for a client whose queue is three quarters full.
const (
	stallMin = 2 * time.Millisecond
	stallMax = 5 * time.Millisecond // the queue is full
)

func (o *outbound) init(pool *wire.Pool, limit int64) {
	o.wake.L = &o.mu
	o.pool, o.max, o.start = pool, limit, outMinBuffer
}

// tail returns the last buffer, with room for n more bytes in one piece.
func (o *outbound) tail(n int) *[]byte {
	size := o.start
	if k := len(o.chain); k > 0 {
		last := &o.chain[k-1]
		if cap(*last)-len(*last) >= n {
			return last
		}
		size = min(2*cap(*last), outMaxBuffer) //nolint:mnd // doubles
	}
	o.chain = append(o.chain, o.pool.Get(max(n, size))[:0])
	return &o.chain[len(o.chain)-1]
}

// fill queues p without counting it, first into what room there is. o.mu is held.
func (o *outbound) fill(p []byte) {
	for len(p) > 0 {
		if k := len(o.chain); k > 0 {
			last := &o.chain[k-1]
			n := min(len(p), cap(*last)-len(*last))
			*last = append(*last, p[:n]...)
			p = p[n:]
		}
		if len(p) > 0 {
			o.chain = append(o.chain, o.pool.Get(min(max(len(p), outMinBuffer), outMaxBuffer))[:0])
		}
	}
}

// append queues p as it is. o.mu is held.
func (o *outbound) append(p string) {
	last := o.tail(len(p))
	*last = append(*last, p...)
	o.pending += int64(len(p))
}

// line queues a line of this server's own, between frames. o.mu is held.
func (o *outbound) line(p string) {
	if o.torn {
		o.later = append(o.later, p...)
		o.pending += int64(len(p))
		o.waiting.Store(true)
		return
	}
	o.append(p)
}

// mend queues what has waited for the end of a frame. o.mu is held.
func (o *outbound) mend() {
	if len(o.later) > 0 {
		o.fill(o.later)
		o.later = o.later[:0]
		if cap(o.later) > outMaxBuffer {
			o.later = nil
		}
		o.waiting.Store(false)
	}
}

// message queues one MSG or HMSG. o.mu is held.
func (o *outbound) message(subject, sid, reply, header, data []byte) {
	hdr := wire.NoHeader
	if len(header) > 0 {
		hdr = len(header)
	}
	total := len(header) + len(data)
	if o.torn {
		before := len(o.later)
		o.later = wire.AppendMsgLine(o.later, subject, sid, reply, hdr, total)
		o.later = append(append(append(o.later, header...), data...), wire.CRLF...)
		o.pending += int64(len(o.later) - before)
		o.waiting.Store(true)
		return
	}
	room := wire.MsgLineMax(subject, sid, reply)
	whole := total <= outInPiece
	if whole {
		room += total + len(wire.CRLF)
	}
	last := o.tail(room)
	before := len(*last)
	b := wire.AppendMsgLine(*last, subject, sid, reply, hdr, total)
	if whole {
		b = append(b, header...)
		b = append(b, data...)
		b = append(b, wire.CRLF...)
	}
	*last = b
	o.pending += int64(len(b) - before)
	if !whole {
		o.fill(header)
		o.fill(data)
		o.pending += int64(total)
		o.append(wire.CRLF)
	}
}

// crowded reports whether producers should pause.
func (o *outbound) crowded() bool { return o.pending > o.max/4*3 }

// stallGate returns the channel that ends the producers' pause, opening by itself after a moment. o.mu is held.
func (o *outbound) stallGate() <-chan struct{} {
	if o.stall == nil {
		gate := make(chan struct{})
		o.stall = gate
		pause := stallMin
		if o.pending >= o.max {
			pause = stallMax
		}
		time.AfterFunc(pause, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.stall == gate {
				o.release()
			}
		})
	}
	return o.stall
}

// release ends the producers' pause. o.mu is held.
func (o *outbound) release() {
	if o.stall != nil {
		close(o.stall)
		o.stall = nil
	}
}

// take waits for something to send and returns it with the reason if the connection ends. spare is reused for the
// next chain.
func (o *outbound) take(spare [][]byte) (chain [][]byte, reason CloseReason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = false
	for o.sending || len(o.chain) == 0 && o.reason == "" {
		o.wake.Wait()
	}
	o.sending = true
	chain = o.chain
	o.chain = spare[:0]
	o.adapt(chain)
	return chain, o.reason
}

// adapt lets the size of the next chain's first buffer follow what there was to send.
func (o *outbound) adapt(chain [][]byte) {
	switch {
	case len(chain) > 1:
		o.start = min(2*o.start, outMaxBuffer) //nolint:mnd // doubles
	case len(chain) == 1 && len(chain[0]) < o.start/4: //nolint:mnd // a quarter, so that it does not swing
		o.start = max(o.start/2, outMinBuffer) //nolint:mnd // halves
	}
}

// claim lets the caller write the one buffer that waits in the writer's place: false if there is more, or the
// writer is at work. unclaim must follow. o.mu is held.
func (o *outbound) claim() (b []byte, ok bool) {
	if o.sending || o.reason != "" || len(o.chain) != 1 || len(o.chain[0]) > inlineMax {
		return nil, false
	}
	o.sending = true
	o.adapt(o.chain)
	b, o.chain[0] = o.chain[0], nil
	o.chain = o.chain[:0]
	return b, true
}

// unclaim gives the socket back after n bytes of b were sent. The writer gets the rest, before what came meanwhile.
func (o *outbound) unclaim(b []byte, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = false
	o.sentLocked(int64(n))
	if n < len(b) {
		rest := o.pool.Get(len(b) - n)[:0]
		o.chain = slices.Insert(o.chain, 0, append(rest, b[n:]...))
	}
	o.pool.Put(b)
	if len(o.chain) > 0 || o.reason != "" {
		o.wake.Signal()
	}
}

// sent says that n bytes of what take returned are gone.
func (o *outbound) sent(n int64) {
	o.mu.Lock()
	o.sentLocked(n)
	o.mu.Unlock()
}

func (o *outbound) sentLocked(n int64) {
	o.pending -= n
	if o.stall != nil && !o.crowded() {
		o.release()
	}
}

// recycle gives the buffers of chain back and empties it.
func (o *outbound) recycle(chain [][]byte) {
	for i, b := range chain {
		o.pool.Put(b)
		chain[i] = nil
	}
}
