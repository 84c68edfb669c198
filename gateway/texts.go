package gateway

import "slices"

// What -ERR lines say. Clients compare these texts.
const (
	errUnknownOp            = "Unknown Protocol Operation"
	errAuthorization        = "Authorization Violation"
	errAuthTimeout          = "Authentication Timeout"
	errAuthRevoked          = "User Authentication Revoked"
	errAccountExpired       = "Account Authentication Expired"
	errAuthExpired          = "User Authentication Expired"
	errMaxConnections       = "maximum connections exceeded"
	errMaxAccountConns      = "maximum account active connections exceeded"
	errMaxSubscriptions     = "maximum subscriptions exceeded"
	errMaxPayload           = "Maximum Payload Violation"
	errMaxControlLine       = "maximum control line exceeded"
	errClientProtocol       = "invalid client protocol"
	errNoRespondersNeedHdrs = "no responders requires headers support"
	errPublishSubject       = "Invalid Publish Subject"
	errSubject              = "Invalid Subject"
	errStale                = "Stale Connection"
	errUnreachable          = "no NATS server upstream can be reached"
	errThrottled            = "Connection throttling is active. Please try again later."
)

// CloseReason says why a connection ended. The texts are those of nats-server's connz.
type CloseReason string

// The reasons.
const (
	ReasonClientClosed       CloseReason = "Client Closed"
	ReasonAuthTimeout        CloseReason = "Authentication Timeout"
	ReasonAuthFailure        CloseReason = "Authentication Failure"
	ReasonTLSHandshake       CloseReason = "TLS Handshake Failure"
	ReasonSlowPending        CloseReason = "Slow Consumer (Pending Bytes)"
	ReasonSlowDeadline       CloseReason = "Slow Consumer (Write Deadline)"
	ReasonWriteError         CloseReason = "Write Error"
	ReasonReadError          CloseReason = "Read Error"
	ReasonParseError         CloseReason = "Parse Error"
	ReasonStale              CloseReason = "Stale Connection"
	ReasonProtocolViolation  CloseReason = "Protocol Violation"
	ReasonBadProtocolVersion CloseReason = "Bad Client Protocol Version"
	ReasonMaxConnections     CloseReason = "Maximum Connections Exceeded"
	ReasonMaxAccountConns    CloseReason = "Maximum Account Connections Exceeded"
	ReasonMaxSubscriptions   CloseReason = "Maximum Subscriptions Exceeded"
	ReasonMaxPayload         CloseReason = "Maximum Message Payload Exceeded"
	ReasonMaxControlLine     CloseReason = "Maximum Control Line Exceeded"
	ReasonShutdown           CloseReason = "Server Shutdown"
	ReasonAuthExpired        CloseReason = "Authentication Expired"
	ReasonCredentialsRevoked CloseReason = "Credentials Revoked"
	ReasonNoRespondersNoHdrs CloseReason = "No Responders Requires Headers"
	ReasonKicked             CloseReason = "Kicked"
	ReasonProxyRequired      CloseReason = "Proxy Required"
	ReasonProxyNotTrusted    CloseReason = "Proxy Not Trusted"
	ReasonInternal           CloseReason = "Internal Client"
	// The following are this server's own.
	ReasonUpstreamUnreachable CloseReason = "Upstream Unreachable"
	ReasonUpstreamLost        CloseReason = "Upstream Connection Lost"
	ReasonUpstreamBack        CloseReason = "Upstream Reachable Again"
)

// CloseReasons are all reasons.
var CloseReasons = []CloseReason{
	ReasonClientClosed, ReasonAuthTimeout, ReasonAuthFailure, ReasonTLSHandshake, ReasonSlowPending, ReasonSlowDeadline,
	ReasonWriteError, ReasonReadError, ReasonParseError, ReasonStale, ReasonProtocolViolation, ReasonBadProtocolVersion,
	ReasonMaxConnections, ReasonMaxAccountConns, ReasonMaxSubscriptions, ReasonMaxPayload, ReasonMaxControlLine,
	ReasonShutdown, ReasonAuthExpired, ReasonCredentialsRevoked, ReasonNoRespondersNoHdrs, ReasonKicked,
	ReasonProxyRequired, ReasonProxyNotTrusted, ReasonInternal, ReasonUpstreamUnreachable, ReasonUpstreamLost,
	ReasonUpstreamBack,
}

// losesOutput tells the reasons after which there is no point in sending what is still queued.
func (r CloseReason) losesOutput() bool {
	lost := []CloseReason{
		ReasonReadError, ReasonWriteError, ReasonSlowPending, ReasonSlowDeadline, ReasonTLSHandshake,
	}
	return slices.Contains(lost, r)
}

// explained tells the reasons that follow an -ERR which the client should get to read.
func (r CloseReason) explained() bool {
	told := []CloseReason{
		ReasonAuthTimeout, ReasonAuthFailure, ReasonParseError, ReasonProtocolViolation, ReasonBadProtocolVersion,
		ReasonMaxConnections, ReasonMaxAccountConns, ReasonMaxPayload, ReasonMaxControlLine, ReasonNoRespondersNoHdrs,
		ReasonMaxSubscriptions, ReasonCredentialsRevoked, ReasonAuthExpired,
		ReasonUpstreamUnreachable,
	}
	return slices.Contains(told, r)
}
