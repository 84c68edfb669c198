package jsapi

import (
	"bytes"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Descriptions of the statuses a consumer sends. Clients compare them (as lower-case substrings), so the texts are
// fixed.
const (
	StatusRequestTimeout  = "Request Timeout"                 // 408
	StatusRequestsPending = "Requests Pending"                // 408
	StatusNoMessages      = "No Messages"                     // 404
	StatusPushBased       = "Consumer is push based"          // 409
	StatusConsumerDeleted = "Consumer Deleted"                // 409
	StatusShutdown        = "Server Shutdown"                 // 409
	StatusBatchCompleted  = "Batch Completed"                 // 409
	StatusMaxBytes        = "Message Size Exceeds MaxBytes"   // 409
	StatusMaxWaiting      = "Exceeded MaxWaiting"             // 409
	StatusMaxBatch        = "Exceeded MaxRequestBatch of "    // 409, with the limit
	StatusMaxExpires      = "Exceeded MaxRequestExpires of "  // 409, with the limit
	StatusMaxRequestBytes = "Exceeded MaxRequestMaxBytes of " // 409, with the limit
	StatusBadRequest      = "Bad Request - "                  // 400, with the reason
	StatusAPILevel        = "Required Api Level"              // 412
	StatusPinMismatch     = "Nats-Pin-Id mismatch"            // 423
	StatusWrongPin        = "Nats-Wrong-Pin-Id"               // 423
	StatusFlowControl     = "FlowControl Request"             // 100
	StatusIdleHeartbeat   = "Idle Heartbeat"                  // 100
	headerLine            = "NATS/1.0"                        //
	headerPendingMessages = server.JSPullRequestPendingMsgs   //
	headerPendingBytes    = server.JSPullRequestPendingBytes  //
)

// AppendStatus appends a header block that is a status without fields.
func AppendStatus(dst []byte, code int, description string) []byte {
	return append(appendStatusLine(dst, code, description), '\r', '\n')
}

// AppendPullStatus appends a status that ends or informs a pull request, with what of the request is still open.
func AppendPullStatus(dst []byte, code int, description string, messages, size int) []byte {
	dst = appendStatusLine(dst, code, description)
	dst = appendField(dst, headerPendingMessages, int64(messages))
	dst = appendField(dst, headerPendingBytes, int64(size))
	return append(dst, '\r', '\n')
}

// AppendIdleHeartbeat appends a heartbeat with the last sequences delivered. stalled is empty, or the reply subject
// of the flow-control request that is waited for.
func AppendIdleHeartbeat(dst []byte, consumerSeq, streamSeq uint64, stalled string) []byte {
	dst = appendStatusLine(dst, 100, StatusIdleHeartbeat)
	dst = appendField(dst, server.JSLastConsumerSeq, int64(consumerSeq)) //nolint:gosec // a sequence
	dst = appendField(dst, server.JSLastStreamSeq, int64(streamSeq))     //nolint:gosec // a sequence
	if stalled != "" {
		dst = append(append(append(dst, server.JSConsumerStalled...), ": "...), stalled...)
		dst = append(dst, '\r', '\n')
	}
	return append(dst, '\r', '\n')
}

// AppendHeader appends the header block hdr (may be empty) with one more field, name: value.
func AppendHeader(dst, hdr []byte, name, value string) []byte {
	dst = openHeader(dst, hdr)
	dst = append(append(append(dst, name...), ": "...), value...)
	return append(dst, "\r\n\r\n"...)
}

// AppendHeaderInt is AppendHeader for a number.
func AppendHeaderInt(dst, hdr []byte, name string, value int64) []byte {
	return append(appendField(openHeader(dst, hdr), name, value), '\r', '\n')
}

// HeaderValue returns the value of the first field called name in a header block (a part of hdr), nil if there is none.
func HeaderValue(hdr []byte, name string) []byte {
	for len(hdr) > 0 {
		line, rest, ok := bytes.Cut(hdr, []byte("\r\n"))
		if !ok {
			return nil
		}
		if len(line) > len(name) && line[len(name)] == ':' && string(line[:len(name)]) == name {
			return bytes.TrimSpace(line[len(name)+1:])
		}
		hdr = rest
	}
	return nil
}

// APILevelTooHigh reports whether a request's header asks for an API level above ours (or for none that can be read).
func APILevelTooHigh(hdr []byte) bool {
	v := HeaderValue(hdr, server.JSRequiredApiLevel)
	if len(v) == 0 {
		return false
	}
	n, err := strconv.Atoi(string(v))
	return err != nil || n > server.JSApiLevel
}

func openHeader(dst, hdr []byte) []byte {
	if len(hdr) < 2 {
		return append(dst, headerLine+"\r\n"...)
	}
	return append(dst, hdr[:len(hdr)-2]...)
}

func appendStatusLine(dst []byte, code int, description string) []byte {
	dst = append(dst, headerLine+" "...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	if description != "" {
		dst = append(append(dst, ' '), description...)
	}
	return append(dst, '\r', '\n')
}

func appendField(dst []byte, name string, n int64) []byte {
	dst = append(append(dst, name...), ": "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}
