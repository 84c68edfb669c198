package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// levelTrace is the level of the raw protocol in the log.
const levelTrace = slog.LevelDebug - 4

// tracing reports whether the log takes the raw protocol.
func (s *Server) tracing() bool {
	return s.log.Enabled(context.Background(), levelTrace) //nolint:forbidigo // nothing cancels a line of the log
}

func (c *client) trace(msg, line string) { c.log(levelTrace, msg, slog.String("line", line)) }

// traceIn writes a command of the client to the log, without its secrets.
func (c *client) traceIn(cmd *wire.Command) {
	line := []string{cmd.Op.String()}
	if cmd.Op == wire.OpPub && cmd.HeaderLen > 0 {
		line[0] = wire.OpHPub.String()
	}
	for _, b := range [][]byte{cmd.Subject, cmd.Reply, cmd.Queue, cmd.SID} {
		if len(b) > 0 {
			line = append(line, string(b))
		}
	}
	switch cmd.Op {
	case wire.OpPub:
		if cmd.HeaderLen > 0 {
			line = append(line, strconv.Itoa(cmd.HeaderLen))
		}
		line = append(line, strconv.Itoa(len(cmd.Payload)))
	case wire.OpUnsub:
		if cmd.Max > 0 {
			line = append(line, strconv.FormatInt(cmd.Max, 10))
		}
	case wire.OpConnect:
		line = append(line, withoutSecrets(cmd.Arg))
	case wire.OpInfo, wire.OpErr:
		line = append(line, string(cmd.Arg))
	case wire.OpNone, wire.OpHPub, wire.OpSub, wire.OpPing, wire.OpPong, wire.OpOK, wire.OpMsg,
		wire.OpHMsg:
	}
	c.trace("<<- [{line}]", strings.Join(line, " "))
	if cmd.Op == wire.OpPub {
		c.tracePayload("<<- MSG_PAYLOAD: [{line}]", cmd.Header(), cmd.Data())
	}
}

// secretFields are the fields of a CONNECT that prove who the client is.
var secretFields = []string{"pass", "auth_token", "sig", "nkey", "jwt", "proxy_sig"}

// withoutSecrets returns the document of a CONNECT with everything replaced that proves who the client is.
func withoutSecrets(doc []byte) string {
	var fields map[string]any
	if json.Unmarshal(doc, &fields) != nil {
		return "[not valid]"
	}
	for key := range fields {
		same := func(name string) bool { return strings.EqualFold(name, key) } // as the options' decoder does it
		if slices.ContainsFunc(secretFields, same) {
			fields[key] = "[REDACTED]"
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return "[not valid]"
	}
	return string(out)
}

// traceOut writes an answer to the client to the log. INFO is left out.
func (c *client) traceOut(proto string) {
	if strings.HasPrefix(proto, "INFO ") {
		return
	}
	line := strings.TrimRight(proto, "\r\n")
	if text, isErr := strings.CutPrefix(line, "-ERR '"); isErr {
		line = "-ERR " + strings.TrimSuffix(text, "'")
	}
	c.trace("->> [{line}]", line)
}

// traceLast writes the -ERR that ends a connection to the log.
func (c *client) traceLast(text string) {
	if c.traced.Load() {
		c.traceOut("-ERR '" + text + "'")
	}
}

// traceDelivery writes messages to the client to the log.
func (c *client) traceDelivery(batch []bus.Delivery) {
	for i := range batch {
		m, sid := &batch[i].Msg, batch[i].Sub.SID
		hdr := wire.NoHeader
		if len(m.Header) > 0 {
			hdr = len(m.Header)
		}
		line := wire.AppendMsgLine(nil, m.Subject, sid, m.Reply, hdr, len(m.Header)+len(m.Data))
		c.traceOut(string(line))
		c.tracePayload("->> MSG_PAYLOAD: [{line}]", m.Header, m.Data)
	}
}

// tracePayload writes a payload, as much of it as the options allow.
func (c *client) tracePayload(msg string, header, data []byte) {
	set := c.server.settings.Load()
	body := string(header)
	if !set.TraceHeaders {
		body += string(data)
	}
	if body == "" {
		return
	}
	quoted := strconv.Quote(body)
	if limit := set.MaxTracedMsgLen; limit > 0 && len(body) > limit {
		quoted = strconv.Quote(body[:limit])
		quoted = quoted[:len(quoted)-1] + `..."`
	}
	c.trace(msg, quoted)
}
