package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/subjects"
)

// A message whose headers ask for it is traced: an event to the subject that they name says whom it reached. So is one
// that is part of a distributed trace, to the subject that its account names for these.

// traceHeader is the header of messages that ask for a trace.
var traceHeader = []byte(server.MsgTraceDest)

// parentHeader is that of distributed traces (W3C Trace Context); its name is in any case.
const parentHeader = "traceparent"

// clientKind is what events call a client connection.
const clientKind = 0

// msgTrace is the trace of one message.
type msgTrace struct {
	dest  string
	only  bool // deliver nothing
	event server.MsgTraceEvent
}

// add appends an event of one type.
func (t *msgTrace) add(e server.MsgTrace) { t.event.Events = append(t.event.Events, e) }

// delivers reports whether the message goes to those who hear it; so does one that is not traced.
func (t *msgTrace) delivers() bool { return t == nil || !t.only }

func traceBase(typ server.MsgTraceType) server.MsgTraceBase {
	return server.MsgTraceBase{Type: typ, Timestamp: time.Now()}
}

// traceOf reads what the headers of a message ask for: nil if it is not traced. With goOn false it is not delivered
// either: it may not be, or only its trace was wanted and cannot be had.
func (c *client) traceOf(cmd *wire.Command) (t *msgTrace, goOn bool) {
	headers := headerFields(cmd.Header())
	value := func(name string) string {
		if list := headers[name]; len(list) > 0 {
			return list[0]
		}
		return ""
	}
	only := slices.Contains([]string{"1", "true", "on"}, strings.ToLower(value(server.MsgTraceOnly)))
	dest := value(server.MsgTraceDest)
	if dest == "" {
		if dest = c.distributed(headers); dest != "" {
			return c.newTrace(cmd, headers, dest), true
		}
	}
	if dest == "" || dest == server.MsgTraceDestDisabled || value(server.MsgTraceOriginAccount) != "" {
		return nil, !only
	}
	if !subjects.ValidLiteral([]byte(dest)) {
		c.fault("Message tracing: {dest} is no subject to publish to", quoted("dest", dest))
		return nil, !only
	}
	if !c.mayPublish(&wire.Command{Subject: []byte(dest)}) {
		return nil, false
	}
	t = c.newTrace(cmd, headers, dest)
	t.only = only
	return t, true
}

// newTrace begins the trace of a message of this client.
func (c *client) newTrace(cmd *wire.Command, headers map[string][]string, dest string) *msgTrace {
	t := &msgTrace{dest: dest}
	t.event.Request = server.MsgTraceRequest{Header: headers, MsgSize: len(cmd.Payload)}
	t.add(&server.MsgTraceIngress{
		MsgTraceBase: traceBase(server.MsgTraceIngressType), Kind: clientKind, CID: c.cid, Name: c.options.Name,
		Account: c.accountName(), Subject: string(cmd.Subject),
	})
	return t
}

// mayBeTraced tells header blocks apart that cannot ask for a trace.
func (c *client) mayBeTraced(block []byte) bool {
	if c.tracer == nil {
		return false
	}
	if bytes.Contains(block, traceHeader) {
		return true
	}
	dest, _ := c.tracer.TraceTo()
	return dest != "" && bytes.Contains(bytes.ToLower(block), []byte(parentHeader))
}

// distributed returns where the account wants to hear of a message with these headers as part of a distributed trace;
// empty: nowhere.
func (c *client) distributed(headers map[string][]string) string {
	dest, percent := c.tracer.TraceTo()
	if dest == "" || rand.IntN(100) >= percent { //nolint:gosec,mnd // a share, in per cent
		return ""
	}
	for name, values := range headers {
		if strings.EqualFold(name, parentHeader) && sampledParent(values[0]) {
			return dest
		}
	}
	return ""
}

// sampledParent reports whether {version}-{trace}-{parent}-{flags} is of a trace that is sampled.
func sampledParent(value string) bool {
	parts := strings.Split(value, "-")
	if len(parts) != 4 || len(parts[3]) != 2 {
		return false
	}
	flags, err := strconv.ParseUint(parts[3], 16, 8)
	return err == nil && flags&1 == 1
}

// headerFields reads a header block; names keep their case.
func headerFields(block []byte) map[string][]string {
	out := map[string][]string{}
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for line := range bytes.SplitSeq(rest, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok {
			out[string(name)] = append(out[string(name)], string(bytes.TrimSpace(value)))
		}
	}
	return out
}

// walk adds whom m will reach. It comes before m is delivered, which may end subscriptions.
func (c *client) walk(t *msgTrace, m *bus.Msg) {
	names, own := c.server.clientNames(), c.accountName()
	c.tracer.Trace(m, func(s *bus.Step) {
		switch {
		case s.Kind == bus.StepServiceImport:
			t.add(&server.MsgTraceServiceImport{
				MsgTraceBase: traceBase(server.MsgTraceServiceImportType), Account: s.Account, From: s.From, To: s.To,
			})
		case s.Kind == bus.StepStreamImport:
			t.add(&server.MsgTraceStreamExport{
				MsgTraceBase: traceBase(server.MsgTraceStreamExportType), Account: s.Account, To: s.To,
			})
		case s.Identity.Stream != "":
			t.add(&server.MsgTraceJetStream{
				MsgTraceBase: traceBase(server.MsgTraceJetStreamType),
				Stream:       s.Identity.Stream, Subject: s.To,
			})
		case s.Party == bus.KindClient:
			e := &server.MsgTraceEgress{
				MsgTraceBase: traceBase(server.MsgTraceEgressType), Kind: clientKind, CID: s.Identity.ID,
				Name: names[s.Identity.ID], Subscription: s.Filter, Queue: s.Queue,
			}
			if s.Account != own {
				e.Account = s.Account
			}
			t.add(e)
		}
	})
}

// clientNames are the names that clients gave themselves, by their ids.
func (s *Server) clientNames() map[uint64]string {
	out := map[uint64]string{}
	for _, c := range s.connected() {
		c.mu.Lock()
		out[c.cid] = c.told.Name
		c.mu.Unlock()
	}
	return out
}

// mapped adds what a subject mapping made of the message's subject.
func (t *msgTrace) mapped(from, to []byte) {
	if t != nil && len(to) > 0 && !bytes.Equal(from, to) {
		base := traceBase(server.MsgTraceSubjectMappingType)
		t.add(&server.MsgTraceSubjectMapping{MsgTraceBase: base, MappedTo: string(to)})
	}
}

// refused notes that the client may not publish to subject.
func (t *msgTrace) refused(subject []byte) {
	if in := t.event.Ingress(); in != nil {
		in.Error = fmt.Sprintf("Permissions Violation for Publish to %q", subject)
	}
}

// sendTrace publishes the event.
func (c *client) sendTrace(t *msgTrace) {
	if identity := c.server.options.Identity; identity != nil {
		t.event.Server = identity()
	}
	t.event.Server.Time = time.Now().UTC()
	if t.event.Server.JetStream {
		t.event.Server.SetJetStreamEnabled()
		t.event.Server.SetBinaryStreamSnapshot()
		t.event.Server.SetAccountNRG()
	}
	doc, err := json.Marshal(&t.event)
	if err != nil {
		c.fault("Message tracing: {error}", slog.Any("error", err))
		return
	}
	c.bus.Publish(&bus.Msg{Subject: []byte(t.dest), Data: doc})
	c.published = true
}
