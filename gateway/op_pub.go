package gateway

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/subjects"
)

// publish hands a message to the bus. The bus delivers it at the next flush.
func (c *client) publish(cmd *wire.Command) {
	c.msgs++
	c.bytes += int64(len(cmd.Payload))
	if c.options.Pedantic {
		c.checkSubject(cmd.Subject)
		c.checked = false
	}
	if c.bus == nil && !c.openSession() {
		return
	}
	if c.unsampled--; c.unsampled < 0 {
		c.sampled(cmd.Subject, len(cmd.Payload))
	}
	var trace *msgTrace
	if cmd.HeaderLen > 0 && c.mayBeTraced(cmd.Header()) {
		var goOn bool
		if trace, goOn = c.traceOf(cmd); !goOn {
			return
		}
	}
	if c.renamer != nil {
		asked := cmd.Subject
		cmd.Subject, _ = c.renamer.Renamed(asked)
		trace.mapped(asked, cmd.Subject)
	}
	if len(cmd.Subject) > 0 && !c.mayPublish(cmd) { // a mapping that says so loses the message
		if trace != nil {
			trace.refused(cmd.Subject)
			c.sendTrace(trace)
		}
		return
	}
	if c.options.Verbose {
		c.flush()
		c.enqueue(wire.OK)
	}
	m := &c.msg
	m.Subject, m.Reply, m.Header, m.Data = cmd.Subject, cmd.Reply, cmd.Header(), cmd.Data()
	c.published = true
	if trace != nil {
		c.walk(trace, m)
	}
	if trace.delivers() && !c.bus.Publish(m) && len(cmd.Reply) > 0 && c.options.NoResponders {
		c.noResponders(cmd)
	}
	if trace != nil {
		c.sendTrace(trace)
	}
}

// checkSubject tells a pedantic client about a subject that nobody can be subscribed to by name, once for a message.
func (c *client) checkSubject(subject []byte) {
	if !c.checked && !subjects.ValidLiteral(subject) {
		c.flush()
		c.refuse(errPublishSubject)
	}
	c.checked = true
}

// checkPending is checkSubject for a message whose payload has not come yet.
func (c *client) checkPending() {
	if !c.options.Pedantic {
		return
	}
	if subject := c.parser.Pending(); subject != nil {
		c.checkSubject(subject)
	}
}

// The subjects that carry meaning inside a NATS system and are not for clients.
var (
	gatewayReplyPrefix    = []byte("_GR_.")
	oldGatewayReplyPrefix = []byte("$GR.")
	raftPrefix            = []byte("$NRG.")
	serviceReplyPrefix    = []byte("_R_.")
	jsAckPrefix           = []byte("$JS.ACK.")
)

func gatewaySubject(s []byte) bool {
	return bytes.HasPrefix(s, gatewayReplyPrefix) || bytes.HasPrefix(s, oldGatewayReplyPrefix)
}

func reservedReply(s []byte) bool {
	return bytes.HasPrefix(s, serviceReplyPrefix) ||
		(len(s) > len(jsAckPrefix) && bytes.HasPrefix(s, jsAckPrefix)) || gatewaySubject(s)
}

// mayPublish checks permissions and reserved subjects and answers what is not allowed.
func (c *client) mayPublish(cmd *wire.Command) bool {
	// Nearly all subjects can be told from the reserved ones by their first byte.
	if b := cmd.Subject[0]; b == '$' || b == '_' {
		if gatewaySubject(cmd.Subject) {
			c.publishViolation(cmd.Subject)
			return false
		}
	}
	if c.guard != nil && !c.guardPublish(cmd.Subject) {
		c.publishViolation(cmd.Subject)
		return false
	}
	if cmd.Subject[0] == '$' && bytes.HasPrefix(cmd.Subject, raftPrefix) && !c.isSystem() {
		c.publishViolation(cmd.Subject)
		return false
	}
	if len(cmd.Reply) > 0 && (cmd.Reply[0] == '_' || cmd.Reply[0] == '$') && reservedReply(cmd.Reply) {
		c.flush()
		c.refuse(fmt.Sprintf("Permissions Violation for Publish with Reply of %q", cmd.Reply))
		c.fault("Publish Violation - Reply {reply}", quoted("reply", cmd.Reply))
		return false
	}
	return c.lone == nil || c.allowedAlone(cmd)
}

func (c *client) publishViolation(subject []byte) {
	c.flush()
	c.refuse(fmt.Sprintf("Permissions Violation for Publish to %q", subject))
	c.fault("Publish Violation - Subject {subject}", quoted("subject", subject))
}

// noResponders tells the requester that nobody heard its request.
func (c *client) noResponders(cmd *wire.Command) {
	sub := c.subFor(cmd.Reply)
	if sub == nil {
		return
	}
	c.flush()
	c.scratch = wire.AppendNoResponders(c.scratch[:0], cmd.Subject, sub.SID, cmd.Reply)
	c.enqueue(string(c.scratch))
}

// subFor returns a subscription of the client, in no queue group, that hears reply: one to just that subject before one
// with wildcards, since it is the one that waits for this answer and no other.
//
// The inbox of a client's requests is found again without a search: a filter with wildcards is remembered until the
// next SUB or UNSUB, unless there is a narrower one below it.
func (c *client) subFor(reply []byte) *subscription {
	if s := c.replySub; s != nil && subjects.Match(s.Filter, reply) {
		return s
	}
	var found *subscription
	all := c.bus.Subscriptions()
	for _, s := range all {
		if s.Queue != "" || !subjects.Match(s.Filter, reply) {
			continue
		}
		if found = s; s.Filter == string(reply) {
			return s
		}
	}
	if found != nil && !slices.ContainsFunc(all, func(s *subscription) bool {
		return !subjects.HasWildcard(s.Filter) && subjects.Match(found.Filter, []byte(s.Filter))
	}) {
		c.replySub = found
	}
	return found
}
