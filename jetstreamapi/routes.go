package jetstreamapi

import (
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// route says who serves an API subject.
type route struct {
	pattern string // what follows $JS.API; * is one token, > one or more
	write   bool   // changes something: served in order by the account's writer
	serve   func(r *request, out *publisher)
}

// routes is every API subject of an account, sorted. Pull requests, resets and direct gets are not here: their subjects
// belong to the asset (see doc.go).
var routes = []route{
	{accountPurgePattern, true, serveAccountPurge},
	{"CONSUMER.CREATE.*", true, serveConsumerCreate},
	{"CONSUMER.CREATE.*.>", true, serveConsumerCreate},
	{"CONSUMER.DELETE.*.*", true, serveConsumerDelete},
	{"CONSUMER.DURABLE.CREATE.*.*", true, serveConsumerCreate},
	{"CONSUMER.INFO.*.*", false, serveConsumerInfo},
	{"CONSUMER.LEADER.STEPDOWN.*.*", false, clusterOnly(server.JSApiConsumerLeaderStepDownResponseType)},
	{"CONSUMER.LIST.*", false, serveConsumerList},
	{"CONSUMER.NAMES.*", false, serveConsumerNames},
	{"CONSUMER.PAUSE.*.*", true, serveConsumerPause},
	{"CONSUMER.PEER.EVACUATE.*.*", false, clusterOnly(server.JSApiConsumerEvacuatePeerResponseType)},
	{"CONSUMER.PEER.REMOVE.*.*", false, clusterOnly(server.JSApiConsumerRemovePeerResponseType)},
	{"CONSUMER.UNPIN.*.*", true, serveConsumerUnpin},
	{infoPattern, false, serveAccountInfo},
	{"STREAM.CANCEL_MOVE.*", false, clusterOnly(server.JSApiStreamCancelMoveResponseType)},
	{"STREAM.CREATE.*", true, serveStreamCreate},
	{"STREAM.DELETE.*", true, serveStreamDelete},
	{"STREAM.INFO.*", false, serveStreamInfo},
	{"STREAM.LEADER.STEPDOWN.*", false, clusterOnly(server.JSApiStreamLeaderStepDownResponseType)},
	{listPattern, false, serveStreamList},
	{"STREAM.MSG.DELETE.*", true, serveMsgDelete},
	{"STREAM.MSG.GET.*", false, serveMsgGet},
	{namesPattern, false, serveStreamNames},
	{"STREAM.PEER.EVACUATE.*", false, clusterOnly(server.JSApiStreamEvacuatePeerResponseType)},
	{"STREAM.PEER.REMOVE.*", false, clusterOnly(server.JSApiStreamRemovePeerResponseType)},
	{"STREAM.PURGE.*", true, serveStreamPurge},
	{"STREAM.RESTORE.*", true, serveStreamRestore},
	{"STREAM.SNAPSHOT.*", false, serveStreamSnapshot},
	{"STREAM.UPDATE.*", true, serveStreamUpdate},
}

// findRoute returns the route of a request's tokens. What nobody serves is answered as a bad request: nats-server lets
// such a request run into its timeout.
func findRoute(tokens []string) *route {
	for i := range routes {
		if matchTokens(routes[i].pattern, tokens) {
			return &routes[i]
		}
	}
	return &unknownRoute
}

var (
	unknownRoute    = route{"", false, serveUnknown}
	notEnabledRoute = route{"", false, serveNotEnabled}
)

// Patterns of what the system account is served, too, and of what others may have to be asked for.
const (
	accountPurgePattern = "ACCOUNT.PURGE.*"
	infoPattern         = "INFO"
	listPattern         = "STREAM.LIST"
	namesPattern        = "STREAM.NAMES"
)

// inSystem is the route in the system account, which has no JetStream itself.
func (rt *route) inSystem() *route {
	switch rt.pattern {
	case unknownRoute.pattern, infoPattern, accountPurgePattern:
		return rt
	}
	return &notEnabledRoute
}

func matchTokens(pattern string, tokens []string) bool {
	for _, t := range tokens {
		var p string
		p, pattern, _ = strings.Cut(pattern, ".")
		switch p {
		case ">":
			return true
		case "*", t:
		default:
			return false
		}
	}
	return pattern == ""
}
