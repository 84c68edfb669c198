package wire

import "bytes"

// Op is a verb of the client protocol.
type Op uint8

// The verbs a client may send.
const (
	// OpNone is no verb: the parser is between two commands.
	OpNone Op = iota
	// OpPub publishes a message, with (HPUB) or without (PUB) a header block.
	OpPub
	// OpHPub is only seen inside the parser; commands carry OpPub.
	OpHPub
	// OpSub subscribes.
	OpSub
	// OpUnsub ends a subscription.
	OpUnsub
	// OpPing asks for a PONG.
	OpPing
	// OpPong answers a PING.
	OpPong
	// OpConnect carries the client's options.
	OpConnect
	// OpInfo is INFO, which a client may send and a server ignores.
	OpInfo
	// OpOK is +OK, which a client may send and a server ignores.
	OpOK
	// OpErr is -ERR, with which a client ends its connection.
	OpErr
	// OpMsg and OpHMsg deliver a message; only servers send them.
	OpMsg
	OpHMsg
)

// String returns the verb as written on the wire.
func (o Op) String() string {
	names := [...]string{
		"", "PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT", "INFO", "+OK", "-ERR", "MSG", "HMSG",
	}
	if int(o) < len(names) {
		return names[o]
	}
	return "?"
}

// NoMax is the Max of an UNSUB without one.
const NoMax = -1

// Command is one parsed client command. Its slices point into the parser's buffer.
type Command struct {
	Op      Op
	Subject []byte // PUB, SUB
	Reply   []byte // PUB
	Queue   []byte // SUB
	SID     []byte // SUB, UNSUB
	Max     int64  // UNSUB: messages in all, or NoMax (also for a malformed number, as nats-server has it)
	Arg     []byte // CONNECT, INFO, -ERR: the rest of the line
	// HeaderLen is the length of the header block at the start of Payload. It is 0 for a PUB, and may be for an HPUB.
	HeaderLen int
	Payload   []byte // PUB: header block and data
}

// Header returns the header block of a PUB, nil if there is none.
func (c *Command) Header() []byte {
	if c.HeaderLen == 0 {
		return nil
	}
	return c.Payload[:c.HeaderLen:c.HeaderLen]
}

// Data returns the payload of a PUB without its header block.
func (c *Command) Data() []byte { return c.Payload[c.HeaderLen:] }

const (
	maxPubArgs  = 3
	maxHPubArgs = 4
	maxSubArgs  = 3
	maxArgs     = maxHPubArgs + 1 // one more, so that "too many" can be seen
)

// splitArgs cuts line at runs of blanks and tabs into out and returns how many there were, at most maxArgs.
func splitArgs(line []byte, out *[maxArgs][]byte) int {
	n, start := 0, -1
	for i, b := range line {
		if b == ' ' || b == '\t' {
			if start >= 0 {
				if out[n] = line[start:i]; n == maxArgs-1 {
					return maxArgs
				}
				n, start = n+1, -1
			}
		} else if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		out[n] = line[start:]
		n++
	}
	return n
}

// splitSubArgs is splitArgs for SUB and UNSUB, where CR and LF are blanks too.
func splitSubArgs(line []byte, out *[maxArgs][]byte) int {
	n := 0
	for len(line) > 0 {
		i := bytes.IndexAny(line, " \t\r\n")
		if i < 0 {
			i = len(line)
		}
		if i > 0 {
			if n == maxArgs {
				return n
			}
			out[n] = line[:i]
			n++
		}
		line = line[min(i+1, len(line)):]
	}
	return n
}

// maxSizeDigits bounds a size on the wire to 999,999,999.
const maxSizeDigits = 9

// parseSize reads a decimal number of at most nine digits; anything else is -1.
func parseSize(d []byte) int {
	if len(d) == 0 || len(d) > maxSizeDigits {
		return -1
	}
	n := 0
	for _, b := range d {
		if b < '0' || b > '9' {
			return -1
		}
		n = n*10 + int(b-'0')
	}
	return n
}
