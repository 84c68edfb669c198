// Package drill is about exercises: a failure is brought about on purpose while a load runs on a stream of the
// exercise's own, and what came of it is evidence for the gates.
//
//	drill   what an exercise is
//	judge   whether it was passed
//	log     the exercises of a data directory, durable
//	cut     a network to the servers that can be cut
//	load    (a folder) the load, and the account that it keeps on the clients' side
package drill

import (
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Kind of an exercise.
const (
	// RestartWriter stops the log's writer as a failed sync would: nothing more is acknowledged, what is queued fails,
	// and the data directory is opened again from disk, within the process. Clients stay connected.
	RestartWriter = "restart-writer"
	// KillGateway ends the process with SIGKILL, and a supervisor starts it again.
	KillGateway = "kill-gateway"
	// Partition closes the gateway's connections to the servers and makes none for some seconds.
	Partition = "partition"
	// Stepdown asks the servers for another leader of the stream.
	Stepdown = "nats-stepdown"
	// FlipAndBack moves a stream there and back.
	FlipAndBack = "flip-and-back"
)

// Kinds are all of them.
var Kinds = []string{RestartWriter, KillGateway, Partition, Stepdown, FlipAndBack}

// DefaultLoad and MaxLoad are messages a second; a partition lasts DefaultCut unless it is said otherwise, and MaxCut
// at most, which is below the time of the gateway's lease on the servers.
const (
	DefaultLoad = 200
	MaxLoad     = 5000
	DefaultCut  = 5 * time.Second
	MaxCut      = 10 * time.Second
)

// Valid is how long an outcome counts.
func Valid(kind string) time.Duration {
	const day = 24 * time.Hour
	switch kind {
	case RestartWriter, FlipAndBack:
		return day
	}
	return 7 * day
}

// Armed reports whether an exercise harms more than its own stream, so that the operator has to allow it beforehand.
func Armed(kind string) bool {
	return kind == RestartWriter || kind == KillGateway || kind == Partition
}

// Loaded reports whether whoever asks for an exercise runs the load, and keeps the account.
func Loaded(kind string) bool { return kind != FlipAndBack }

// Here reports whether the gateway has the say about the exercise's stream. Of the others the servers have.
func Here(kind string) bool { return kind == RestartWriter || kind == KillGateway }

// State of an exercise.
type State string

// States. Only Passed is green: what could not be measured is Failed, with the reason.
const (
	Running       State = "running"
	Passed        State = "passed"
	Failed        State = "failed"
	NotApplicable State = "not_applicable" // the question does not arise here; Result says why
)

// Step is where a running exercise is.
type Step string

// Steps, in order.
const (
	Preparing Step = "preparing" // its stream is made
	Ready     Step = "ready"     // the load may begin, and then ask for the fault
	Broken    Step = "fault"     // the fault was brought about; the account is waited for
	Settling  Step = "settling"  // both sides become equal
)

// Drill is an exercise and its evidence.
type Drill struct {
	ID      uint64        `json:"id"` // ascending, for ever
	Kind    string        `json:"kind"`
	Scope   cutover.Scope `json:"scope"` // whom it was asked for; the evidence is for all streams
	State   State         `json:"state"`
	Step    Step          `json:"step,omitempty"`
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended,omitzero"`
	Expires time.Time     `json:"expires,omitzero"`
	Result  string        `json:"result,omitempty"`
	By      string        `json:"by,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	// Version and Image are those of the program that was exercised: Image is the digest of its file.
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	// Age is how long ago it ended, in seconds, and Lapsed why it does not count any more. They are worked out as it is
	// shown.
	Age    float64 `json:"age_seconds,omitempty"`
	Lapsed string  `json:"lapsed,omitempty"`

	// Stream, Subject and Consumer are those of the load, in the account of Scope; Load is in messages a second.
	Stream   string `json:"stream,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	Load     int    `json:"load,omitempty"`
	// Fault is what was done, Before and After what the gateway saw, and Account what the load did; nil: not yet.
	Fault   *Fault   `json:"fault,omitempty"`
	Before  *Sight   `json:"before,omitempty"`
	After   *Sight   `json:"after,omitempty"`
	Account *Account `json:"account,omitempty"`
	// Tidied: its stream is gone from both sides.
	Tidied bool `json:"tidied,omitempty"`
}

// Fault is what was done.
type Fault struct {
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // of one that lasts
	Detail string    `json:"detail,omitempty"`
	// Led and Leads are the servers that led the stream before and after a step-down.
	Led   string `json:"led,omitempty"`
	Leads string `json:"leads,omitempty"`
}

// Sight is what the gateway itself sees of an exercise's stream.
type Sight struct {
	At       time.Time `json:"at"`
	Process  time.Time `json:"process"` // when the process began
	Epoch    uint64    `json:"epoch"`   // of who has the say
	Here     uint64    `json:"here_last_seq"`
	There    uint64    `json:"there_last_seq"` // on the servers
	Messages uint64    `json:"messages"`       // here
	Reopens  uint64    `json:"reopens"`        // of the data directory in this process
	// Examined is how many messages were compared, Diverged how many of them differ, and Unequal why the two sides are
	// not known to be equal; empty: they are.
	Examined uint64 `json:"examined"`
	Diverged uint64 `json:"diverged"`
	Unequal  string `json:"unequal,omitempty"`
}

// Account is what the load did and met, as its clients saw it. Times are in seconds.
type Account struct {
	Published  uint64 `json:"published"`  // messages that were acknowledged
	Before     uint64 `json:"before"`     // of them, ahead of the fault
	After      uint64 `json:"after"`      // of them, behind the last trouble
	Retried    uint64 `json:"retried"`    // attempts that failed and were made again
	Unanswered uint64 `json:"unanswered"` // messages that were not acknowledged, however often they were tried
	Delivered  uint64 `json:"delivered"`  // messages
	// Redelivered are deliveries of a message again; Confirmed are messages whose ack was confirmed.
	Redelivered uint64 `json:"redelivered"`
	Confirmed   uint64 `json:"confirmed"`

	Lost    uint64 `json:"lost"`         // acknowledged, and not delivered
	Twice   uint64 `json:"stored_twice"` // messages with two sequences
	Again   uint64 `json:"again"`        // deliveries that were asked for behind the confirmed ack of that message
	Altered uint64 `json:"altered"`      // sequences under which something else was delivered than was acknowledged
	// Backward are acknowledgements with a sequence that is not above one given before the publish began.
	Backward uint64 `json:"backward"`
	LastSeq  uint64 `json:"last_seq"` // the highest that was acknowledged

	Disconnects int     `json:"disconnects"`
	Redial      float64 `json:"redial_seconds"`   // longest from a connection lost to the next made
	Recovery    float64 `json:"recovery_seconds"` // from the fault, or its end, to where everything works again
	Gap         float64 `json:"gap_seconds"`      // longest without an acknowledgement, from the fault on
	LastError   string  `json:"last_error,omitempty"`
	// Error is why the exercise itself could not be carried out; empty: it was.
	Error string `json:"error,omitempty"`
}

// Faults are what a gateway can do to itself.
type Faults struct {
	// Allowed: the operator has said that exercises may do harm.
	Allowed bool
	// Kill ends the process at once. It does not return.
	Kill func()
	// Restart stops the log's writer and returns when the data directory serves again.
	Restart func() error
	// Reopens is how often that has happened in this process.
	Reopens func() uint64
	// Cut closes all connections to the servers and lets none be made for a while. It returns how many were closed.
	Cut func(time.Duration) int
}
