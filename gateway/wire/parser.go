package wire

import (
	"bytes"
)

// Limits are what a Parser enforces before it stores anything.
type Limits struct {
	MaxControlLine int  // bytes of the arguments of a line
	MaxPayload     int  // bytes of header block and data; negative: no limit
	Headers        bool // HPUB is allowed
}

// Parser reads the client protocol incrementally: hand it bytes with Space and Filled, take commands with Next until it
// says there is no whole one, repeat. It holds at most one read buffer, plus what a message larger than that has
// really sent so far. Not for concurrent use.
type Parser struct {
	limits Limits
	input
	op      Op   // the verb whose line is being read
	inArg   bool // the first byte of the arguments has been seen
	scanned int  // bytes of the arguments known to hold no LF
	need    int  // bytes that the message being read takes from the start of its arguments; 0: not known yet
}

// NewParser returns a parser with an initial buffer of MinBuffer bytes. pool may be shared by any number of parsers.
func NewParser(l Limits, pool *Pool) *Parser {
	return &Parser{limits: l, input: newInput(pool)}
}

// SetLimits replaces the limits, from the next command on.
func (p *Parser) SetLimits(l Limits) { p.limits = l }

// Limits returns the limits in force.
func (p *Parser) Limits() Limits { return p.limits }

// Peek returns the first byte of the next command, if the parser is between two commands and has one.
func (p *Parser) Peek() (byte, bool) {
	if p.op != OpNone || p.r == p.w {
		return 0, false
	}
	return p.buf[p.r], true
}

// Pending returns the subject of a message whose line was read and whose payload is not whole, or is not followed by a
// CRLF; nil if there is none. It is for clients that want to hear of a bad subject before they have sent the rest.
func (p *Parser) Pending() []byte {
	if p.op == OpNone || p.need == 0 {
		return nil
	}
	var a [maxArgs][]byte
	line, _, _ := bytes.Cut(p.buf[p.r+1:p.w], []byte{'\n'}) // the first byte belongs to the arguments whatever it is
	splitArgs(p.buf[p.r:p.r+1+len(line)], &a)
	return a[0]
}

// Space returns where to put the next bytes. It is never empty. The slices of all commands so far become invalid.
func (p *Parser) Space() []byte {
	if p.op == OpPub || p.op == OpHPub {
		return p.space(p.need)
	}
	return p.space(0)
}

// Next parses one command into c. False without an error means that more bytes are needed.
func (p *Parser) Next(c *Command) (bool, error) {
	for p.r < p.w {
		if p.op == OpNone {
			if ok, err := p.verb(); !ok {
				return false, err
			}
		}
		var done bool
		var err error
		if p.op == OpPing || p.op == OpPong || p.op == OpOK {
			done = p.blankLine(c)
		} else {
			done, err = p.argLine(c)
		}
		if !done || err != nil {
			return false, err
		}
		if c.Op != OpOK {
			return true, nil
		}
	}
	return false, nil
}

// verb reads the verb at the read position and moves behind it. It fails at the first byte that cannot be right.
func (p *Parser) verb() (bool, error) {
	data := p.buf[p.r:p.w]
	op, name := verbOf(data)
	if op == OpNone {
		if name == "" {
			return false, ErrUnknownOp
		}
		return false, nil
	}
	n := min(len(data), len(name))
	for i := 1; i < n; i++ {
		if data[i] != name[i] && (data[i]|0x20 != name[i] || name[i] < 'a') {
			return false, ErrUnknownOp
		}
	}
	if n < len(name) {
		return false, nil
	}
	if op.needsBlank() {
		if len(data) == n {
			return false, nil
		}
		if !blank(data[n]) {
			return false, ErrUnknownOp
		}
		n++
	}
	p.r += n
	p.op, p.inArg, p.scanned, p.need = op, false, 0, 0
	return true, nil
}

// verbOf tells the verb from its first one or two bytes. OpNone with a name means that one byte is not enough.
func verbOf(data []byte) (op Op, name string) {
	switch data[0] {
	case 'P', 'p':
		if len(data) == 1 {
			return OpNone, "p"
		}
		switch data[1] {
		case 'U', 'u':
			return OpPub, "pub"
		case 'I', 'i':
			return OpPing, "ping"
		case 'O', 'o':
			return OpPong, "pong"
		}
	case 'H', 'h':
		return OpHPub, "hpub"
	case 'S', 's':
		return OpSub, "sub"
	case 'U', 'u':
		return OpUnsub, "unsub"
	case 'C', 'c':
		return OpConnect, "connect"
	case 'I', 'i':
		return OpInfo, "info"
	case '+':
		return OpOK, "+ok"
	case '-':
		return OpErr, "-err"
	}
	return OpNone, ""
}

// needsBlank tells the verbs that a blank must follow; the arguments of the others may start at once.
func (o Op) needsBlank() bool {
	return o == OpPub || o == OpHPub || o == OpSub || o == OpUnsub || o == OpErr
}

func blank(b byte) bool { return b == ' ' || b == '\t' }

// blankLine reads the rest of a PING, PONG or +OK, which may be anything and is not kept.
func (p *Parser) blankLine(c *Command) bool {
	i := bytes.IndexByte(p.buf[p.r:p.w], '\n')
	if i < 0 {
		p.r = p.w
		return false
	}
	p.r += i + 1
	*c = Command{Op: p.op}
	p.op = OpNone
	return true
}

// argLine reads the arguments of the verb and, for a message, its payload.
func (p *Parser) argLine(c *Command) (bool, error) {
	if !p.inArg {
		for p.r < p.w && blank(p.buf[p.r]) {
			p.r++
		}
		if p.r == p.w {
			return false, nil
		}
		p.inArg, p.scanned = true, 1 // the first byte is an argument, even if it is a line feed
	}
	data := p.buf[p.r:p.w]
	if p.need > len(data) {
		return false, p.checkTail(data)
	}
	lf := -1
	if p.scanned < len(data) {
		lf = bytes.IndexByte(data[p.scanned:], '\n')
	}
	if lf < 0 {
		p.scanned = len(data)
		if len(trimCR(data)) > p.limits.MaxControlLine {
			return false, ErrMaxControlLine
		}
		return false, nil
	}
	lf += p.scanned
	line := trimCR(data[:lf])
	if len(line) > p.limits.MaxControlLine {
		return false, ErrMaxControlLine
	}
	if p.op == OpPub || p.op == OpHPub {
		return p.message(c, data, line, lf)
	}
	if err := p.simple(c, line); err != nil {
		return false, err
	}
	p.r += lf + 1
	p.op = OpNone
	return true, nil
}

// trimCR drops the CR that ends line. As in nats-server a CR elsewhere (but for the first byte) makes a line that ends
// in a bare LF lose its last byte.
func trimCR(line []byte) []byte {
	n := len(line)
	if n < 2 {
		return line
	}
	if line[n-1] == '\r' || bytes.IndexByte(line[1:], '\r') >= 0 {
		return line[:n-1]
	}
	return line
}

// simple parses the arguments of everything but a message.
func (p *Parser) simple(c *Command, line []byte) error {
	if p.op == OpSub {
		return parseSub(c, line)
	}
	if p.op == OpUnsub {
		return parseUnsub(c, line)
	}
	*c = Command{Op: p.op, Arg: line}
	return nil
}

func parseSub(c *Command, line []byte) error {
	var a [maxArgs][]byte
	switch splitSubArgs(line, &a) {
	case maxSubArgs - 1:
		*c = Command{Op: OpSub, Subject: a[0], SID: a[1]}
	case maxSubArgs:
		*c = Command{Op: OpSub, Subject: a[0], Queue: a[1], SID: a[2]}
	default:
		return argError(OpSub, "want subject, optional queue, sid", line)
	}
	return nil
}

func parseUnsub(c *Command, line []byte) error {
	var a [maxArgs][]byte
	switch splitSubArgs(line, &a) {
	case 1:
		*c = Command{Op: OpUnsub, SID: a[0], Max: NoMax}
	case 2: //nolint:mnd // sid and max
		*c = Command{Op: OpUnsub, SID: a[0], Max: int64(parseSize(a[1]))}
	default:
		return argError(OpUnsub, "want sid, optional max", line)
	}
	return nil
}

// message parses the arguments of a PUB or HPUB (line, which ends at data[lf]) and waits for its payload.
func (p *Parser) message(c *Command, data, line []byte, lf int) (bool, error) {
	var size int
	var err error
	if p.op == OpPub {
		size, err = parsePub(c, line)
	} else {
		size, err = p.parseHPub(c, line)
	}
	if err != nil {
		return false, err
	}
	if p.limits.MaxPayload >= 0 && size > p.limits.MaxPayload {
		return false, &PayloadError{Size: size, Max: p.limits.MaxPayload}
	}
	start := lf + 1
	p.need = start + size + len(crlf)
	if p.need > len(data) {
		return false, p.checkTail(data)
	}
	end := start + size
	if data[end] != '\r' || data[end+1] != '\n' {
		return false, ErrUnknownOp
	}
	c.Payload = data[start:end:end]
	p.r += p.need
	p.op = OpNone
	return true, nil
}

// checkTail refuses a payload that lacks its CR before its last byte has come.
func (p *Parser) checkTail(data []byte) error {
	if len(data) == p.need-1 && data[p.need-2] != '\r' {
		return ErrUnknownOp
	}
	return nil
}

// parsePub fills c but for its payload and returns the payload's size.
func parsePub(c *Command, line []byte) (int, error) {
	var a [maxArgs][]byte
	n := splitArgs(line, &a)
	if n != maxPubArgs && n != maxPubArgs-1 {
		return 0, argError(OpPub, "want subject, optional reply, size", line)
	}
	size := parseSize(a[n-1])
	if size < 0 {
		return 0, argError(OpPub, "bad or missing size", line)
	}
	*c = Command{Op: OpPub, Subject: a[0]}
	if n == maxPubArgs {
		c.Reply = a[1]
	}
	return size, nil
}

// parseHPub is parsePub for a message with a header block.
func (p *Parser) parseHPub(c *Command, line []byte) (int, error) {
	if !p.limits.Headers {
		return 0, ErrHeaders
	}
	var a [maxArgs][]byte
	n := splitArgs(line, &a)
	if n != maxHPubArgs && n != maxHPubArgs-1 {
		return 0, argError(OpHPub, "want subject, optional reply, header size, total size", line)
	}
	hdr, size := parseSize(a[n-2]), parseSize(a[n-1])
	switch {
	case hdr < 0:
		return 0, argError(OpHPub, "bad or missing header size", line)
	case size < 0:
		return 0, argError(OpHPub, "bad or missing total size", line)
	case hdr > size:
		return 0, argError(OpHPub, "header size larger than total size", line)
	}
	*c = Command{Op: OpPub, Subject: a[0], HeaderLen: hdr}
	if n == maxHPubArgs {
		c.Reply = a[1]
	}
	return size, nil
}
