package ws

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/klauspost/compress/flate"
)

const (
	readBuffer     = 16 << 10
	compressAbove  = 64      // bytes; less does not get smaller
	maxFrame       = 1 << 20 // bytes that one Write puts in a frame
	maxControl     = 125
	minHeader      = 2
	maskBit        = 0x80
	lengthBits     = 0x7f
	shortLength    = 126
	longLength     = 127
	flateLevel     = flate.BestSpeed
	deflateTail    = "\x00\x00\xff\xff" // ends each message; it does not travel
	deflateLastOne = "\x01\x00\x00\xff\xff"
)

// Conn is a connection inside WebSocket frames. One goroutine may read and several may write. A Read that a deadline
// interrupts can be repeated; after a failed Write the connection is of no use.
type Conn struct {
	net.Conn
	o        *Options
	masked   bool // frames of the client
	deflated bool // compression was agreed on

	// The reader's.
	r         *bufio.Reader
	most      int   // bytes of a compressed message
	left      int64 // payload bytes of the current frame not read yet
	key       [4]byte
	at        int  // in the mask
	within    bool // a message that continues in another frame
	squeezed  bool // the current message is compressed
	fin       bool // of the current frame
	packed    bytes.Buffer
	inflating io.Reader // what is left of a compressed message; nil: nothing
	inflater  io.ReadCloser

	mu     sync.Mutex
	out    []byte // a frame
	small  bytes.Buffer
	told   bool // a CLOSE frame was sent
	broken error
}

// deflaters are shared: each takes much memory, and no message depends on the one before.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flateLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func newConn(conn net.Conn, o *Options, masked, deflated bool) *Conn {
	c := &Conn{Conn: conn, o: o, masked: masked, deflated: deflated, r: bufio.NewReaderSize(conn, readBuffer)}
	c.SetMaxCompressed(o.MaxCompressed)
	return c
}

// SetMaxCompressed replaces MaxCompressed of the options, from the next frame on. Only the reader may call it.
func (c *Conn) SetMaxCompressed(n int) {
	if c.most = n; n <= 0 {
		c.most = defaultMaxCompressed
	}
}

// ProtocolError is a client's breach of RFC 6455. The client was told with a CLOSE frame.
type ProtocolError struct{ Reason string }

// Error says what was wrong.
func (e *ProtocolError) Error() string { return "websocket: " + e.Reason }

// protocol tells the client of its mistake.
func (c *Conn) protocol(code ws.StatusCode, format string, args ...any) error {
	err := &ProtocolError{fmt.Sprintf(format, args...)}
	_ = c.CloseWith(uint16(code), err.Reason) // the connection ends in any case
	return err
}

// Read returns bytes from inside the client's frames; io.EOF after its CLOSE frame, which is answered.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		switch {
		case c.inflating != nil:
			n, err := c.inflating.Read(p)
			if errors.Is(err, io.EOF) {
				c.inflating, err = nil, nil
			}
			if err != nil {
				return n, c.protocol(ws.StatusInvalidFramePayloadData, "compressed message: %v", err)
			}
			if n > 0 {
				return n, nil
			}
		case c.left > 0:
			n, err := c.payload(p)
			if n > 0 || err != nil {
				return n, err
			}
		default:
			if err := c.nextFrame(); err != nil {
				return 0, err
			}
		}
	}
}

// payload reads of the current frame: into p, or aside if it is compressed.
func (c *Conn) payload(p []byte) (int, error) {
	if c.squeezed {
		p = make([]byte, min(c.left, readBuffer))
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	if c.masked {
		ws.Cipher(p[:n], c.key, c.at)
		c.at = (c.at + n) % len(c.key)
	}
	c.left -= int64(n)
	if !c.squeezed {
		return n, noEOF(err)
	}
	c.packed.Write(p[:n])
	if c.left == 0 && c.fin {
		return 0, c.inflate()
	}
	return 0, noEOF(err)
}

// noEOF makes an end inside a frame an unexpected one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// inflate begins to read the compressed message that is complete now.
func (c *Conn) inflate() error {
	c.packed.WriteString(deflateTail + deflateLastOne)
	if c.inflater == nil {
		c.inflater = flate.NewReader(&c.packed)
	} else if r, ok := c.inflater.(flate.Resetter); ok {
		if err := r.Reset(&c.packed, nil); err != nil {
			return err
		}
	}
	c.inflating = c.inflater
	return nil
}

// nextFrame reads the header of a frame, and all of it if it is a control frame.
func (c *Conn) nextFrame() error {
	h, size, err := c.peekHeader()
	if err != nil {
		return err
	}
	if err := c.check(&h); err != nil {
		return err
	}
	if h.OpCode.IsControl() {
		frame, err := c.r.Peek(size + int(h.Length))
		if err != nil {
			return noEOF(err)
		}
		body := bytes.Clone(frame[size:])
		if h.Masked {
			ws.Cipher(body, h.Mask, 0)
		}
		_, _ = c.r.Discard(len(frame))
		return c.control(h.OpCode, body)
	}
	_, _ = c.r.Discard(size)
	if h.OpCode != ws.OpContinuation {
		c.squeezed = h.Rsv1()
		c.packed.Reset()
	}
	c.left, c.fin, c.within, c.key, c.at = h.Length, h.Fin, !h.Fin, h.Mask, 0
	if c.squeezed && c.left == 0 && c.fin {
		return c.inflate()
	}
	return nil
}

// peekHeader parses the header of the next frame without taking it from the buffer: a deadline may come in between.
func (c *Conn) peekHeader() (h ws.Header, size int, err error) {
	b, err := c.r.Peek(minHeader)
	if err != nil {
		if len(b) > 0 {
			err = noEOF(err)
		}
		return h, 0, err
	}
	size = minHeader
	switch b[1] & lengthBits {
	case shortLength:
		size += 2
	case longLength:
		size += 8
	}
	if b[1]&maskBit != 0 {
		size += len(h.Mask)
	}
	if b, err = c.r.Peek(size); err != nil {
		return h, 0, noEOF(err)
	}
	if h, err = ws.ReadHeader(bytes.NewReader(b)); err != nil {
		return h, 0, c.protocol(ws.StatusProtocolError, "%v", err)
	}
	return h, size, nil
}

// check refuses frames that must not come.
func (c *Conn) check(h *ws.Header) error {
	squeezed := h.Rsv1() || h.OpCode == ws.OpContinuation && c.squeezed
	switch {
	case h.Masked != c.masked && c.masked:
		return c.protocol(ws.StatusProtocolError, "the client's frames must be masked")
	case h.Masked != c.masked:
		return c.protocol(ws.StatusProtocolError, "frames are masked in spite of %s", maskHeader)
	case h.Rsv2() || h.Rsv3() || h.Rsv1() && (!c.deflated || h.OpCode.IsControl() || h.OpCode == ws.OpContinuation):
		return c.protocol(ws.StatusProtocolError, "reserved bits are set")
	case h.OpCode.IsReserved():
		return c.protocol(ws.StatusProtocolError, "unknown opcode %d", h.OpCode)
	case h.OpCode.IsControl() && (!h.Fin || h.Length > maxControl):
		return c.protocol(ws.StatusProtocolError, "control frame of several parts or more than %d bytes", maxControl)
	case !h.OpCode.IsControl() && (h.OpCode == ws.OpContinuation) != c.within:
		return c.protocol(ws.StatusProtocolError, "a message begins within another, or goes on without a beginning")
	case squeezed && int64(c.packed.Len())+h.Length > int64(c.most):
		return c.protocol(ws.StatusMessageTooBig, "compressed message of more than %d bytes", c.most)
	}
	return nil
}

// control answers a PING or a CLOSE.
//
//nolint:exhaustive // an answer to nothing needs none
func (c *Conn) control(op ws.OpCode, body []byte) error {
	switch op {
	case ws.OpPing:
		if c.pingFollows() {
			return nil // one answer, to the last of them, is enough: RFC 6455, section 5.5.3
		}
		return c.answer(ws.OpPong, body)
	case ws.OpClose:
		code := uint16(ws.StatusNormalClosure)
		if len(body) >= 2 {
			code = uint16(body[0])<<8 | uint16(body[1])
		}
		_ = c.CloseWith(code, "") // the client is gone already, or waits for this
		return io.EOF
	default:
		return nil
	}
}

// pingFollows reports whether another PING has come already.
func (c *Conn) pingFollows() bool {
	n := c.r.Buffered()
	if n < minHeader {
		return false
	}
	b, err := c.r.Peek(minHeader)
	size := minHeader + int(b[1]&lengthBits)
	if c.masked {
		size += len(c.key)
	}
	return err == nil && b[0]&0x0f == byte(ws.OpPing) && n >= size
}

// answer sends a control frame within a deadline of its own.
func (c *Conn) answer(op ws.OpCode, body []byte) error {
	limit := c.o.WriteDeadline
	if limit <= 0 {
		limit = defaultWriteDeadline
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return c.send(op, body, false)
}

// CloseWith sends a CLOSE frame with a status code of RFC 6455, section 7.4, once. The socket stays open.
func (c *Conn) CloseWith(code uint16, reason string) error {
	c.mu.Lock()
	told := c.told
	c.told = true
	c.mu.Unlock()
	if told {
		return nil
	}
	body := ws.NewCloseFrameBody(ws.StatusCode(code), reason[:min(len(reason), maxControl-2)])
	return c.answer(ws.OpClose, body)
}

// Write sends p in frames of the server's choice. An error that is a timeout ends the connection too: part of a frame
// is of no use to anyone.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		part := p[:min(len(p), maxFrame)]
		if err := c.sendData(part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

func (c *Conn) sendData(p []byte) error {
	if !c.deflated || len(p) < compressAbove {
		return c.send(ws.OpBinary, p, false)
	}
	w, _ := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	c.small.Reset()
	w.Reset(&c.small)
	if _, err := w.Write(p); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	body := bytes.TrimSuffix(c.small.Bytes(), []byte(deflateTail))
	return c.send(ws.OpBinary, body, true)
}

// send writes one frame.
func (c *Conn) send(op ws.OpCode, body []byte, squeezed bool) error {
	if c.broken != nil {
		return c.broken
	}
	h := ws.Header{Fin: true, OpCode: op, Length: int64(len(body)), Rsv: ws.Rsv(squeezed, false, false)}
	head := bytes.NewBuffer(c.out[:0])
	if err := ws.WriteHeader(head, h); err != nil {
		return err
	}
	c.out = append(head.Bytes(), body...)
	_, err := c.Conn.Write(c.out)
	c.broken = err
	if cap(c.out) > maxFrame {
		c.out = nil
	}
	return err
}
