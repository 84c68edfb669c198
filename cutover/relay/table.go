package relay

import (
	"bytes"
	"slices"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/subjects"
)

// State says who has the say about a stream.
type State uint8

const (
	// Upstream says that the servers do, and what passes is noted.
	Upstream State = iota
	// Held says that the servers do, and nothing that clients say about the stream passes until the next table.
	Held
	// Here says that this gateway does. What the servers still send about it is not for clients.
	Here
	// HeldHere is Here, and nothing that clients say about the stream is heard until the next table.
	HeldHere
)

func (s State) here() bool { return s == Here || s == HeldHere }
func (s State) held() bool { return s == Held || s == HeldHere }

// Route is a stream in a table.
type Route struct {
	Scope *Scope
	State State
	// Subjects are the filters that the stream stores.
	Subjects []string
	// Deliver are the subjects that its consumers push to. Of interest when State is Here or HeldHere: what the servers
	// still send there is not for clients.
	Deliver []string
	// Consumers are those that are served by another than the stream: Here, HeldHere, or Held on their way. The rest of
	// the stream is Upstream then.
	Consumers map[string]State
}

// consumer is the state of a consumer of the stream.
func (r *Route) consumer(name []byte) State {
	if s, ok := r.Consumers[string(name)]; ok {
		return s
	}
	return r.State
}

// Table is what is decided about all streams under watch. It is never changed once it is in use.
type Table struct {
	// Epoch grows with every change of authority.
	Epoch    uint64
	accounts map[string]*account
	strict   bool // some stream is Held or Here: a client's account must be known before anything passes
	marked   bool // messages of the reverse chain may come from upstream
	next     chan struct{}
}

// account is the routes of one account.
type account struct {
	subjects subjects.Index[*Route]
	deliver  subjects.Index[*Route]
	streams  map[string]*Route
	here     bool // some stream is Here, or some consumer
	whole    bool // some stream is Here
}

// NewTable returns a table. marked says that a stream was Here once: what the reverse chain has published is hidden
// from clients. The error is a filter that is none.
func NewTable(epoch uint64, routes []Route, marked bool) (*Table, error) {
	t := &Table{Epoch: epoch, accounts: make(map[string]*account), marked: marked, next: make(chan struct{})}
	for i := range routes {
		r := &routes[i]
		name := r.Scope.Name.Account
		a := t.accounts[name]
		if a == nil {
			a = &account{streams: make(map[string]*Route)}
			t.accounts[name] = a
		}
		a.streams[r.Scope.Name.Stream] = r
		t.strict = t.strict || r.State != Upstream || len(r.Consumers) > 0
		a.here = a.here || r.State.here() || len(r.Consumers) > 0
		a.whole = a.whole || r.State.here()
		for _, s := range r.Subjects {
			if _, err := a.subjects.Insert(s, r); err != nil {
				return nil, err
			}
		}
		for _, s := range r.Deliver {
			if _, err := a.deliver.Insert(s, r); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// storing returns the route of the stream that stores a subject, nil if there is none.
func (a *account) storing(subject []byte) (found *Route) {
	a.subjects.Match(subject, func(r *Route) bool {
		found = r
		return false
	})
	return found
}

// ofStream returns the route of a stream by its name, nil if it is not under watch.
func (a *account) ofStream(name []byte) *Route { return a.streams[string(name)] }

var (
	jsPrefix  = []byte("$JS.")
	ackPrefix = []byte(jsapi.AckPrefix)
	fcPrefix  = []byte(jsapi.FlowControlPrefix)
	apiToken  = []byte("API")
	apiPrefix = []byte(jsapi.APIPrefix)
	msgNext   = []byte("CONSUMER.MSG.NEXT.")
	msgGet    = []byte("STREAM.MSG.GET.")
)

// apiStream returns the stream that an API request is about, and what the request is, without that name:
// "CONSUMER.MSG.NEXT." and the like. Nil: it is about no stream, or is no API request.
func apiStream(subject []byte) (verb, stream, rest []byte) {
	body := subject[len(jsPrefix):]
	first, body, _ := bytes.Cut(body, dot)
	if !bytes.Equal(first, apiToken) { // $JS.<domain>.API
		first, body, _ = bytes.Cut(body, dot)
		if !bytes.Equal(first, apiToken) {
			return nil, nil, nil
		}
	}
	for _, v := range verbs {
		if bytes.HasPrefix(body, v) {
			stream, rest, _ = bytes.Cut(body[len(v):], dot)
			return v, stream, rest
		}
	}
	return nil, nil, nil
}

var dot = []byte{'.'}

// verbs are the API requests that name a stream right behind them, the longer before those they begin with.
var verbs = [][]byte{
	msgNext,
	[]byte("CONSUMER.DURABLE.CREATE."), []byte("CONSUMER.LEADER.STEPDOWN."), []byte("CONSUMER.CREATE."),
	[]byte("CONSUMER.DELETE."), []byte("CONSUMER.INFO."), []byte("CONSUMER.LIST."), []byte("CONSUMER.NAMES."),
	[]byte("CONSUMER.PAUSE."), []byte("CONSUMER.RESET."), []byte("CONSUMER.UNPIN."),
	[]byte("DIRECT.GET.LAST."), []byte("DIRECT.GET."),
	[]byte("STREAM.LEADER.STEPDOWN."), []byte("STREAM.MSG.DELETE."), []byte("STREAM.MSG.GET."),
	[]byte("STREAM.PEER.REMOVE."),
	[]byte("STREAM.CREATE."), []byte("STREAM.DELETE."), []byte("STREAM.INFO."), []byte("STREAM.PURGE."),
	[]byte("STREAM.RESTORE."), []byte("STREAM.SNAPSHOT."), []byte("STREAM.UPDATE."),
}

// changing are the verbs that change a stream or its consumers.
func changing(verb []byte) bool { return slices.Contains(changes, string(verb)) }

// renewing are the verbs behind which a consumer may deliver again what was acknowledged.
func renewing(verb []byte) bool {
	return string(verb) == "CONSUMER.DELETE." || string(verb) == "CONSUMER.RESET."
}

// removing are the verbs that remove messages.
func removing(verb []byte) bool {
	return string(verb) == "STREAM.MSG.DELETE." || string(verb) == "STREAM.PURGE."
}

var changes = []string{
	"CONSUMER.DURABLE.CREATE.", "CONSUMER.CREATE.", "CONSUMER.DELETE.", "CONSUMER.PAUSE.", "CONSUMER.RESET.",
	"STREAM.MSG.DELETE.", "STREAM.CREATE.", "STREAM.DELETE.", "STREAM.PURGE.", "STREAM.RESTORE.", "STREAM.UPDATE.",
}
