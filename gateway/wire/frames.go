package wire

import "bytes"

// Sender says whose frames a [Frames] cuts.
type Sender uint8

// The two ends of a connection.
const (
	FromClient Sender = iota
	FromServer
)

// Frame is a piece of one direction of a connection: a line, with as much of its payload as has come, or more of the
// payload of the line before (OpNone). Its slices point into the buffer of the [Frames].
type Frame struct {
	Op  Op
	Raw []byte // the bytes as they came
	// Arg is the rest of the line behind the verb, without its end.
	Arg     []byte
	Subject []byte // PUB, HPUB, SUB, MSG, HMSG
	Reply   []byte // PUB, HPUB, MSG, HMSG
	Queue   []byte // SUB
	SID     []byte // SUB, UNSUB, MSG, HMSG
	Max     int64  // UNSUB: as in Command
	Size    int    // PUB, HPUB, MSG, HMSG: bytes of header block and data in all
	Head    int    // HPUB, HMSG: bytes of the header block
}

// Frames finds where the frames of one direction begin and end, for those who pass the bytes on and want to know what
// is in them. It judges nothing: what it does not understand, and everything after that, is handed out as it is, since
// whoever receives it has to judge it and will say so. It keeps no payload: a message is handed out as it comes. Not
// for concurrent use.
type Frames struct {
	input
	from    Sender
	maxLine int
	body    int  // bytes of payload and CRLF still to come
	scanned int  // bytes of the line known to hold no line feed
	opaque  bool // the bytes cannot be told apart any more
}

// NewFrames returns a Frames with a buffer from pool. It waits for the end of a line for at most maxLine bytes.
func NewFrames(from Sender, maxLine int, pool *Pool) *Frames {
	return &Frames{input: newInput(pool), from: from, maxLine: maxLine}
}

// Opaque reports whether the bytes cannot be told apart any more.
func (s *Frames) Opaque() bool { return s.opaque }

// Between reports whether what was handed out so far ends with the end of a frame.
func (s *Frames) Between() bool { return s.body == 0 && !s.opaque }

// Space returns where to put the next bytes. It is never empty. The slices of all frames so far become invalid.
func (s *Frames) Space() []byte { return s.space(0) }

// Next cuts off one frame. False means that more bytes are needed. The Raws of successive frames without a Space in
// between follow each other in memory.
func (s *Frames) Next(f *Frame) bool {
	data := s.buf[s.r:s.w]
	switch {
	case len(data) == 0:
		return false
	case s.opaque:
		return s.take(f, len(data))
	case s.body > 0:
		n := min(s.body, len(data))
		s.body -= n
		return s.take(f, n)
	}
	lf := bytes.IndexByte(data[s.scanned:], '\n')
	if lf < 0 {
		s.scanned = len(data)
		if len(data) > s.maxLine || !s.possible(data) {
			return s.giveUp(f)
		}
		return false
	}
	end := s.scanned + lf + 1
	line := bytes.TrimSuffix(data[:end-1], []byte{'\r'})
	if !s.parse(f, line) {
		return s.giveUp(f)
	}
	if f.Op.hasPayload() {
		s.body = f.Size + len(crlf)
		n := min(s.body, len(data)-end)
		s.body -= n
		end += n
	}
	f.Raw = data[:end]
	s.r += end
	s.scanned = 0
	return true
}

func (s *Frames) take(f *Frame, n int) bool {
	*f = Frame{Raw: s.buf[s.r : s.r+n]}
	s.r += n
	return true
}

func (s *Frames) giveUp(f *Frame) bool {
	s.opaque = true
	return s.take(f, s.w-s.r)
}

func (o Op) hasPayload() bool { return o == OpPub || o == OpHPub || o == OpMsg || o == OpHMsg }

// verb tells the verb that data begins with. OpNone with a name means that there are not enough bytes to tell.
func (s *Frames) verb(data []byte) (op Op, name string) {
	if s.from == FromServer {
		switch data[0] {
		case 'M', 'm':
			return OpMsg, "msg"
		case 'H', 'h':
			return OpHMsg, "hmsg"
		}
	}
	return verbOf(data)
}

// possible reports whether an incomplete line can still become one.
func (s *Frames) possible(data []byte) bool {
	_, name := s.verb(data)
	n := min(len(data), len(name))
	return name != "" && bytes.EqualFold(data[:n], []byte(name)[:n])
}

// parse fills f, but for Raw, from a whole line. False: this is no line that the protocol knows.
func (s *Frames) parse(f *Frame, line []byte) bool {
	if len(line) == 0 {
		return false
	}
	op, name := s.verb(line)
	if op == OpNone || len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return false
	}
	arg := line[len(name):]
	if bytes.IndexByte(arg, '\r') >= 0 || (op.hasPayload() || op.needsBlank()) && (len(arg) == 0 || !blank(arg[0])) {
		return false
	}
	for len(arg) > 0 && blank(arg[0]) {
		arg = arg[1:]
	}
	*f = Frame{Op: op, Arg: arg}
	switch op {
	case OpPub, OpHPub, OpMsg, OpHMsg:
		return f.message()
	case OpSub:
		return f.command(parseSub)
	case OpUnsub:
		return f.command(parseUnsub)
	case OpConnect, OpInfo, OpErr:
		return len(arg) > 0
	case OpNone, OpPing, OpPong, OpOK:
	}
	return true
}

// command fills f by a function of Parser.
func (f *Frame) command(parse func(*Command, []byte) error) bool {
	var c Command
	if parse(&c, f.Arg) != nil {
		return false
	}
	f.Subject, f.Queue, f.SID, f.Max = c.Subject, c.Queue, c.SID, c.Max
	return true
}

// message reads the arguments of a line that a payload follows.
func (f *Frame) message() bool {
	var a [maxArgs][]byte
	n := splitArgs(f.Arg, &a)
	names, sizes := 1, 1 // subject; size
	if f.Op == OpMsg || f.Op == OpHMsg {
		names = 2 // and sid
	}
	if f.Op == OpHPub || f.Op == OpHMsg {
		sizes = 2 // and that of the header block
	}
	if n != names+sizes && n != names+1+sizes {
		return false
	}
	f.Subject = a[0]
	if names > 1 {
		f.SID = a[1]
	}
	if n > names+sizes {
		f.Reply = a[names]
	}
	f.Size = parseSize(a[n-1])
	if sizes == 1 {
		return f.Size >= 0
	}
	f.Head = parseSize(a[n-2])
	return f.Head >= 0 && f.Head <= f.Size
}

// Split takes a message apart of which raw is all: its line goes to f, as Next gives it.
func (s *Frames) Split(raw []byte, f *Frame) (header, data []byte, ok bool) {
	end := bytes.IndexByte(raw, '\n') + 1
	if end == 0 || !s.parse(f, bytes.TrimSuffix(raw[:end-1], []byte{'\r'})) || !f.Op.hasPayload() ||
		len(raw) != end+f.Size+len(crlf) {
		return nil, nil, false
	}
	f.Raw = raw
	return raw[end : end+f.Head], raw[end+f.Head : end+f.Size], true
}
