package wire

import (
	"errors"
	"fmt"
)

// The ways a client's bytes can be wrong. After any of them the connection is lost: the parser does not resynchronise.
var (
	// ErrUnknownOp is a verb that is not one, or a payload without its CRLF.
	ErrUnknownOp = errors.New("unknown protocol operation")
	// ErrMaxControlLine is a line longer than Limits.MaxControlLine.
	ErrMaxControlLine = errors.New("maximum control line exceeded")
	// ErrHeaders is an HPUB from a client that has not agreed to headers.
	ErrHeaders = errors.New("message headers not supported")
)

// PayloadError is a PUB that announces more than the limit allows. Nothing was allocated for it.
type PayloadError struct {
	Size, Max int // bytes
}

// Error implements error.
func (e *PayloadError) Error() string {
	return fmt.Sprintf("maximum payload exceeded: %d vs %d", e.Size, e.Max)
}

// ArgError is a known verb with arguments that make no sense.
type ArgError struct {
	Op   Op
	What string
	Line string // the arguments, shortened
}

// maxQuotedLine is how much of an offending line an error keeps.
const maxQuotedLine = 128

// Error implements error.
func (e *ArgError) Error() string { return fmt.Sprintf("%v: %s: %q", e.Op, e.What, e.Line) }

func argError(op Op, what string, line []byte) error {
	return &ArgError{Op: op, What: what, Line: string(line[:min(len(line), maxQuotedLine)])}
}
