// Package accounts holds what accounts offer each other and how they rename subjects: exports, imports and mappings,
// from the configuration file or from the claims of operator mode. It settles who may import what, and turns the rest
// into [bus.Links].
package accounts

import (
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// Account is what one account offers, takes and renames. Immutable once it was given to a [Registry].
type Account struct {
	Name string // in operator mode its public key
	// SigningKeys may sign activations besides the account's own key.
	SigningKeys []string
	Exports     []Export
	Imports     []Import
	Mappings    []Mapping
	// TraceTo is where the account hears of messages that are part of a distributed trace; empty: nowhere. TraceShare
	// is how many of them, in per cent.
	TraceTo    string
	TraceShare int
}

// Response says how many answers a service gives to a request.
type Response uint8

// The kinds of responses.
const (
	Singleton Response = iota // one
	Streamed                  // any number
	Chunked                   // one, in parts
)

// Export is a stream or service that others may import.
type Export struct {
	Subject string // a filter
	Service bool

	// Who may import. With none of these set everybody may.
	TokenRequired bool // those who have an activation
	// TokenPosition: those whose name is this token of the subject they import, counted from 1; 0: no such rule.
	TokenPosition int
	Approved      []string         // these accounts
	Revoked       map[string]int64 // activations of these accounts ("*": of all) signed no later, in Unix seconds

	// Of services.
	Trace     bool // traces of requests go on in this account
	Response  Response
	Threshold time.Duration // how long an answer is waited for; 0: two minutes
	Latency   *Latency      // nil: not measured
}

// Latency says that requests of a service are measured.
type Latency struct {
	Results  string // subject of the measurements
	Sampling int    // per cent of the requests; 0: those whose headers ask for it
}

// Import is a stream or service of another account.
type Import struct {
	Account string // whose
	Subject string // in that account
	// Local is the subject here. It may order the wildcards of Subject anew, as $1 or {{wildcard(1)}}.
	Local   string
	Service bool
	Share   bool   // tell the service all about who asks
	Token   string // an activation; may be empty
	Trace   bool   // of a stream: traces go on to who hears it here
}

// LocalFilter is Local with * for every wildcard, in whatever order it puts them.
func (im *Import) LocalFilter() string { return pattern(im.Local) }

// Mapping renames a subject that clients publish to.
type Mapping struct {
	Subject      string // a filter
	Destinations []Destination
}

// Destination is one of the subjects that a mapping leads to.
type Destination struct {
	Subject string
	Weight  int    // per cent
	Cluster string // where it holds; empty: in clusters that have no destinations of their own
}

// ImportsJetStream reports whether requests of the JetStream API go to another account, so that the account's own
// answer to them, also that there is no JetStream, would be one too many.
func (a *Account) ImportsJetStream() bool {
	return slices.ContainsFunc(a.Imports, func(im Import) bool {
		return im.Service && subjects.Match(pattern(im.Local), server.JSApiAccountInfo)
	})
}

// Prefixed is the Local of a stream import that puts prefix before the subject.
func Prefixed(prefix, subject string) string {
	if prefix == "" {
		return subject
	}
	if prefix[len(prefix)-1] != '.' {
		prefix += "."
	}
	return prefix + subject
}
