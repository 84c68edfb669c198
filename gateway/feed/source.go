package feed

import (
	"errors"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
)

// What a Source's errors wrap.
var (
	// ErrUnknown is an account without streams, or a stream that is not there.
	ErrUnknown = errors.New("not found")
	// ErrTooMany is a request for more than a feed begins with.
	ErrTooMany = errors.New("too much to begin with")
	// ErrLogin is a login that is refused, or is no longer good.
	ErrLogin = errors.New("login refused")
	// ErrForbidden is what the login may not do; the error says what.
	ErrForbidden = errors.New("not permitted")
	// ErrLost is a connection that the streams are read over: who comes back goes on.
	ErrLost = errors.New("the connection to the servers is lost")
)

// Source has the streams. Safe for concurrent use.
type Source interface {
	// Ready returns why the streams cannot be read now; nil: they can.
	Ready() error
	// Subjects returns the subjects a stream takes; none: any.
	Subjects(account, stream string) ([]string, error)
	// Open returns a reader. The error wraps ErrUnknown or ErrTooMany, or says why the stream cannot be read now.
	Open(account, stream string, from *From) (Reader, error)
}

// Visitor is a client that others have let in, and the streams as it may see them. Errors of its Source may wrap
// ErrForbidden.
type Visitor interface {
	Source
	Login() *auth.Login
	// Renew returns who the client is now. The error wraps ErrLogin or ErrLost, or says why the stream cannot be read
	// on.
	Renew() (*auth.Login, error)
	// Gone is closed when others have put the client out, or the connection to them has ended; Renew says why.
	Gone() <-chan struct{}
	Close()
}

// Policy says where a feed begins; the names are those of JetStream's deliver policies.
type Policy string

// The policies.
const (
	DeliverAll             Policy = "all"
	DeliverNew             Policy = "new"
	DeliverLast            Policy = "last"
	DeliverLastPerSubject  Policy = "last_per_subject"
	DeliverByStartSequence Policy = "by_start_sequence"
	DeliverByStartTime     Policy = "by_start_time"
)

// From is where a feed begins and what it has.
type From struct {
	Policy  Policy
	Seq     uint64    // of DeliverByStartSequence
	Time    time.Time // of DeliverByStartTime
	Filters []string  // none: all subjects
}

// Message is a message of a stream. Its bytes stay as they are.
type Message struct {
	Seq                   uint64
	Time                  time.Time
	Subject, Header, Data []byte // Header is a whole NATS/1.0 block, or empty
}

// Step is what a Reader gives: a message, or what is missing, or nothing for now.
type Step struct {
	Message *Message
	Missing uint64 // with no message: the first of the sequences up to Upto that are not in the stream; 0: none
	Upto    uint64 // everything up to here was given
}

// Reader reads a stream. One goroutine at a time uses it.
type Reader interface {
	// Next returns what comes next. An error is the end.
	Next() (Step, error)
	// Wake is sent to when Next may have more.
	Wake() <-chan struct{}
	// Position returns the sequence to go on behind, if there is one yet.
	Position() (seq uint64, ok bool)
	// Last returns the newest sequence of the stream.
	Last() uint64
	Close()
}
