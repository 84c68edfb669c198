// Package cutover moves streams from NATS servers that are in use onto the gateway's own log and back, one by one, with
// proof (docs/cutover.md, docs/adr/0005). This package holds the words that its parts share:
//
//	upstream   connections of clients to the servers
//	relay      what passes between clients and servers: routes, holds, who acknowledged what
//	origin     the gateway's own connection to the servers' JetStream
//	capture    copies a stream of the servers into a standby here
//	parity     compares the two, and what was acknowledged
//	flip       changes who has the say, either way
//	lease      keeps two gateways from having it
//	reverse    keeps the servers equal to a stream that is served here
//	probe      asks both sides the same, and compares what they answer and how fast
//	gate       whether it may be changed
//	drill      failures that are brought about on purpose, as evidence
//	face       what operators see of it
//	hook       their own programs, which are asked and told
//	console    the page on which they do
//	visit      reads streams of the servers for feeds
//	pilot      puts them together
//
// A stream is the unit of authority: its subjects, its API and its consumers move together, and its sequences stay.
package cutover

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Scope names a stream of an account.
type Scope struct{ Account, Stream string }

// String returns account/stream.
func (s Scope) String() string { return s.Account + "/" + s.Stream }

// Record is one stored message, with the sequence and the time that the authority gave it. Its slices are borrowed,
// unless a function says otherwise.
type Record struct {
	Seq     uint64
	Time    int64 // Unix nanoseconds
	Subject []byte
	Header  []byte // the raw header block, "NATS/1.0...\r\n\r\n"; empty: none
	Data    []byte
}

// Role says who has the say about a stream's messages.
type Role uint8

const (
	// Standby is a stream that takes records as they are given, and answers no client. It runs no limits, ages, TTLs,
	// schedules, sources or deduplication of its own, and has no interest in its subjects on the bus.
	Standby Role = iota
	// Authority is a stream like any other.
	Authority
)

// Errors that parts of the cutover tell apart.
var (
	// ErrNoStream says that the stream does not exist on that side.
	ErrNoStream = errors.New("no such stream")
	// ErrNoRecord says that there is no record with that sequence: it was removed or never stored.
	ErrNoRecord = errors.New("no such record")
	// ErrNoConsumer says that the stream has no consumer of that name.
	ErrNoConsumer = errors.New("no such consumer")
	// ErrRole says that the stream is not in the role which the call is for.
	ErrRole = errors.New("the stream is in another role")
	// ErrMoved says that a stream went on that was to stand still.
	ErrMoved = errors.New("the stream has moved")
	// ErrIncarnation says that a stream of that name is there, but another one: made at another time.
	ErrIncarnation = errors.New("another stream of that name")
	// ErrOrder says that a record was offered at or below the last one with other content.
	ErrOrder = errors.New("a record out of order")
)

// Reader reads a stream of either side.
type Reader interface {
	// State returns the stream's state: first and last sequence, messages, bytes, deleted (with details).
	State(ctx context.Context, deleted bool) (server.StreamState, error)
	// Read gives the records from a sequence on, ascending, to fn until it returns false, there is none more, or ctx
	// ends. A record that cannot be read is an *UnreadableError given by fn's second argument: reading goes on behind
	// it.
	Read(ctx context.Context, from uint64, fn func(r *Record, err error) bool) error
	// Get returns one record: ErrNoRecord if there is none. Its slices are the caller's.
	Get(ctx context.Context, seq uint64) (*Record, error)
}

// Bounded is a Reader that asks for records ahead, and can be told where to stop.
type Bounded interface {
	// ReadTo is Read up to last, which is the last record that is given, or asked for.
	ReadTo(ctx context.Context, from, last uint64, fn func(r *Record, err error) bool) error
}

// ReadTo is Read up to last, which a Bounded is told.
func ReadTo(ctx context.Context, from Reader, first, last uint64, fn func(r *Record, err error) bool) error {
	if b, ok := from.(Bounded); ok {
		return b.ReadTo(ctx, first, last, fn)
	}
	return from.Read(ctx, first, func(r *Record, err error) bool {
		var bad *UnreadableError
		return (r == nil || r.Seq <= last) && (!errors.As(err, &bad) || bad.Seq <= last) && fn(r, err)
	})
}

// UnreadableError is a record that is there and cannot be read.
type UnreadableError struct {
	Seq uint64
	Err error
}

func (e *UnreadableError) Error() string { return "unreadable record: " + e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// Local is the gateway's own JetStream as the cutover sees it. jetstreamapi implements it.
type Local interface {
	// Create makes the standby of a stream, with that configuration to the byte and that time of creation. The first
	// record it takes is first or a later one. A standby that is there already is returned, with its configuration
	// brought up to date. Errors: ErrRole, the stream is there and is the authority, or was made by a client;
	// ErrIncarnation, the standby is that of a stream made at another time; else what keeps this stream from being
	// served here one day (limits of the account, a subject another stream has, a feature that is not there).
	Create(ctx context.Context, account string, cfg *server.StreamConfig, created time.Time, first uint64) (Copy, error)
	// Stream returns a stream, in whichever role: ErrNoStream if there is none.
	Stream(account, name string) (Copy, error)
	// Named is Stream for one that may be gone: its methods say ErrNoStream for as long as it is not there.
	Named(account, name string) Copy
	// Scopes returns the streams that Create has made and Delete has not removed, with their roles.
	Scopes() map[Scope]Role
}

// Copy is a stream of Local.
type Copy interface {
	Reader // of what is durable and visible
	Role() Role
	Config() server.StreamConfig
	Created() time.Time
	// Apply stores records, ascending, as they are: Standby only. Sequences that are missing between two of them count
	// as deleted. Those at or below the last are passed over (compare first where that matters). It returns how many it
	// is done with; stall, if not nil, is to be waited on before more is applied. Nothing is durable before Durable
	// says so.
	Apply(batch []Record) (done int, stall <-chan struct{}, err error)
	// Advance makes last, of that time (Unix nanoseconds), the last sequence of a standby whose authority has removed
	// what led there. A standby that is there already or further stays.
	Advance(last uint64, at int64) error
	// Remove deletes records of a standby that the authority has removed. Those that are not there are passed over.
	Remove(seqs []uint64) error
	// RemoveBelow deletes all records of a standby below first, which is its last sequence plus one at most.
	RemoveBelow(first uint64) error
	// Durable waits until everything up to seq, and every removal before the call, is durable and visible.
	Durable(ctx context.Context, seq uint64) error
	// Progress returns the last sequence that is durable and visible, and a channel that closes when that has moved, or
	// the stream has changed its role, is gone or fails.
	Progress() (seq uint64, moved <-chan struct{})
	// SetRole changes the role, durably. As a new authority it continues at the last sequence plus one, and starts
	// everything that a standby does not run. As a new standby it delivers nothing more, has done with all acks that
	// came in before, and keeps what its consumers remember for Consumers. On an error of ctx the role may have
	// changed, or may yet: Role tells.
	SetRole(ctx context.Context, role Role) error
	// TakePulls returns what is left of the pull requests that waited when the stream became a standby. It returns each
	// once; those that it has not returned go on when the stream is the authority again.
	TakePulls() []Pull
	// Delete removes the stream and all its data.
	Delete(ctx context.Context) error

	// Dedup returns and takes the deduplication window: message ids, oldest first. What a standby is given is kept in
	// RAM until it is the authority; after a restart it knows those of the messages it has, as nats-server does.
	Dedup() []DedupEntry
	ImportDedup(entries []DedupEntry) error

	// Consumers returns what is known of the stream's consumers here, by name.
	Consumers() ([]ConsumerCopy, error)
	// ConsumerNames returns their names, sorted. One whose creation was answered before a message was published is
	// among them once that message is visible.
	ConsumerNames() ([]string, error)
	// ImportConsumer makes a consumer with exactly this state, durably, in the place of one of that name. On a standby
	// it does nothing until the stream is the authority.
	ImportConsumer(ctx context.Context, c *ConsumerCopy) error
	// DeleteConsumer removes one: no error if there is none.
	DeleteConsumer(ctx context.Context, name string) error
	// ServeConsumer makes a consumer of a standby deliver to clients what is visible here and take their acks, from the
	// state that it has. One that is served already is left alone: it is to be called again after the data directory
	// was opened anew. Nothing is removed from the stream by acks. Errors: ErrNoConsumer; ErrRole, the stream is the
	// authority.
	ServeConsumer(ctx context.Context, name string) error
	// RestConsumer ends that: it has done with all acks that came in before, durably, and waiting pull requests were
	// told so. On an error it is served on.
	RestConsumer(ctx context.Context, name string) error
	// Served returns the consumers of a standby that are served, sorted.
	Served() []string
}

// Pull is what is left of a pull request.
type Pull struct {
	Consumer string
	Inbox    string
	Request  []byte // the body
}

// DedupEntry is a message id that the deduplication window remembers.
type DedupEntry struct {
	ID   string
	Seq  uint64
	Time int64 // Unix nanoseconds
}

// ConsumerCopy is a consumer with all that it remembers, in nats-server's form.
type ConsumerCopy struct {
	Name    string
	Config  server.ConsumerConfig
	Created time.Time
	State   server.ConsumerState
	// Exact: State is known to be what the authority has. Otherwise what is pending is a superset: as many messages
	// may be delivered once more.
	Exact bool
	// Pin is whom the consumer is pinned to (priority policy pinned_client). It is not durable.
	Pin Pin
}

// Pin says which client has a group of a consumer to itself.
type Pin struct {
	Group string
	ID    string // that the client sends; empty: there is none
	Since time.Time
}

// Upstream is a stream of the NATS servers, through the gateway's own connection. origin implements it.
type Upstream interface {
	Reader
	Info(ctx context.Context) (*server.StreamInfo, error)
	// Follow gives the stream's records from a sequence on as they are stored, until ctx ends or fn fails. It ends with
	// an error when it cannot go on; the caller follows again from where it got to. live is true once fn has got all
	// that was there.
	Follow(ctx context.Context, from uint64, fn func(batch []Record, live bool) error) error
	Consumers(ctx context.Context) ([]*server.ConsumerInfo, error)
}

// Elsewhere are the servers, as who serves some of their streams asks about all of an account. The servers may have a
// stream of a name that is served here, too: they keep it equal, or have it still. It does not count then.
type Elsewhere interface {
	// Here reports whether a stream is served from here.
	Here(account, stream string) bool
	// Names returns the account's streams on the servers that store a subject, sorted; empty: all of them.
	Names(ctx context.Context, account, subject string) ([]string, error)
	// Infos returns n of these streams from an offset on, as STREAM.LIST shows them.
	Infos(ctx context.Context, account, subject string, offset, n int) (*Infos, error)
	// Usage returns what INFO says of the account.
	Usage(ctx context.Context, account string) (*server.JetStreamAccountStats, error)
}

// Infos are streams as STREAM.LIST shows them.
type Infos struct {
	Streams []json.RawMessage // as the servers wrote them
	Missing []string          // those whose leader does not answer
	Offline map[string]string // those that cannot be served, and why
}
