package wire

// Sizes of read buffers, in bytes. A buffer starts at MinBuffer, doubles when a read fills it and halves after several
// reads that use less than half of it. Only a message larger than MaxBuffer makes it grow beyond that, and only as its
// bytes arrive.
const (
	MinBuffer = 512
	MaxBuffer = 64 << 10
	// growFactor is how much larger than what has arrived a buffer for a large message may be.
	growFactor = 4
	// shortsToShrink is the number of short reads in a row after which a buffer shrinks.
	shortsToShrink = 2
)

// input is a growing read buffer: buf[r:w] is what came and was not parsed.
type input struct {
	buf    []byte
	r, w   int
	pool   *Pool
	size   int // what the adaptive rule makes of the traffic
	shorts int // short reads in a row
}

func newInput(pool *Pool) input {
	return input{pool: pool, size: MinBuffer, buf: pool.Get(MinBuffer)}
}

// Filled says that n bytes were put into the start of Space.
func (in *input) Filled(n int) {
	room := len(in.buf) - in.w
	in.w += n
	switch {
	case n >= room:
		in.shorts = 0
		in.size = min(max(in.size, len(in.buf))*2, MaxBuffer) //nolint:mnd // doubles
	case n < room/2: //nolint:mnd // less than what a halved buffer would hold
		in.shorts++
		if in.shorts > shortsToShrink && in.size > MinBuffer {
			in.size /= 2
			in.shorts = 0
		}
	default:
		in.shorts = 0
	}
}

// Buffered returns the bytes that were not parsed. They must not be changed.
func (in *input) Buffered() []byte { return in.buf[in.r:in.w] }

// Close gives the buffer back. The parser must not be used afterwards.
func (in *input) Close() {
	in.pool.Put(in.buf)
	in.buf, in.r, in.w = nil, 0, 0
}

// space moves what is pending to the front of a buffer of the right size and returns the room behind it. need is the
// number of bytes that the pending command takes in all, 0 if that is not known.
func (in *input) space(need int) []byte {
	pending := in.w - in.r
	want := max(in.size, MinBuffer)
	if pending > 0 {
		// Room for what is to come, but never more than a multiple of what has come.
		want = max(want, min(max(need, 2*pending), max(MaxBuffer, growFactor*pending))) //nolint:mnd // doubles
	}
	if len(in.buf) < want || (len(in.buf) > MaxBuffer && pending == 0) || (len(in.buf) > 2*want && pending == 0) {
		next := in.pool.Get(want)
		copy(next, in.buf[in.r:in.w])
		in.pool.Put(in.buf)
		in.buf = next
	} else if in.r > 0 {
		copy(in.buf, in.buf[in.r:in.w])
	}
	in.r, in.w = 0, pending
	return in.buf[pending:]
}
