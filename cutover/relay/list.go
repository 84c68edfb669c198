package relay

import (
	"bytes"
	"slices"

	"github.com/noetl/ehdb-gateway/gateway"
)

// wholes are the API requests that are about all streams of an account.
var wholes = [][]byte{[]byte("STREAM.NAMES"), []byte("STREAM.LIST"), []byte("INFO")}

// upWhole decides about a request that is about no stream. While some streams are served from here, what is about all
// of them is answered here, from both sides. Other domains' are passed on.
func (g *guide) upWhole(a *account, subject []byte) gateway.Course {
	if !a.whole {
		return gateway.CoursePass
	}
	rest, ok := bytes.CutPrefix(subject, apiPrefix)
	if !ok && len(g.relay.domain) > 0 {
		rest, ok = bytes.CutPrefix(subject, g.relay.domain)
	}
	if !ok || !slices.ContainsFunc(wholes, func(w []byte) bool { return bytes.Equal(w, rest) }) {
		return gateway.CoursePass
	}
	if id, _ := g.traveler.Identity(); !id.Permitted {
		return gateway.CoursePass // what it may do is not known here: it sees what the servers have
	}
	return gateway.CourseLocal
}
