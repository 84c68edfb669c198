package relay

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// maxUnknown bounds the subjects of the API that are remembered.
const maxUnknown = 100

// unknown are the subjects of the API that clients use and that are served by nobody here.
type unknown struct {
	mu   sync.Mutex
	seen map[string]time.Time // the last use
}

// others are the API requests that name no stream, or of which a server without a cluster knows only to refuse them.
var others = [][]byte{
	[]byte("STREAM.CANCEL_MOVE."), []byte("STREAM.PEER."), []byte("CONSUMER.PEER."),
}

// look takes note of a request to the API that apiStream does not know.
func (u *unknown) look(subject []byte) {
	rest := subject[len(jsPrefix):]
	first, rest, _ := bytes.Cut(rest, dot)
	if !bytes.Equal(first, apiToken) { // $JS.<domain>.API
		if first, rest, _ = bytes.Cut(rest, dot); !bytes.Equal(first, apiToken) {
			return
		}
	}
	switch string(rest) {
	case "INFO", "STREAM.NAMES", "STREAM.LIST":
		return
	}
	if slices.ContainsFunc(others, func(p []byte) bool { return bytes.HasPrefix(rest, p) }) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = make(map[string]time.Time)
	}
	if _, known := u.seen[string(rest)]; !known && len(u.seen) >= maxUnknown {
		u.forget()
	}
	u.seen[string(rest)] = time.Now()
}

// forget makes room: what was used longest ago goes, so that what is used now is always seen.
func (u *unknown) forget() {
	var oldest string
	for s, at := range u.seen {
		if oldest == "" || at.Before(u.seen[oldest]) {
			oldest = s
		}
	}
	delete(u.seen, oldest)
}

// Unknown returns the subjects of the API, without their prefix, that clients have used since then and that nobody here
// serves, sorted; the last hundred are remembered.
func (r *Relay) Unknown(since time.Time) (list []string) {
	r.unknown.mu.Lock()
	defer r.unknown.mu.Unlock()
	for s, at := range r.unknown.seen {
		if at.After(since) {
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return list
}
