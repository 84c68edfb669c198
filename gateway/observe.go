package gateway

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// EventKind says what happened to a connection.
type EventKind uint8

// The kinds of events.
const (
	EventConnected EventKind = iota + 1
	EventDisconnected
	EventAuthFailed
)

// Event is what is known of a connection when something happened to it.
type Event struct {
	Client         *server.ClientInfo
	Sent, Received server.DataStats // by the client
	Reason         string           // of an end or a refusal
}

// Observer is told what happens to connections. It must not block. describe is for the time of the call or later.
type Observer interface {
	Observe(kind EventKind, account string, describe func() Event)
}

// observe tells the observer, if there is one.
func (c *client) observe(kind EventKind, reason CloseReason) {
	if o := c.server.options.Observer; o != nil {
		o.Observe(kind, c.accountName(), func() Event { return c.event(kind, reason) })
	}
}

func (c *client) event(kind EventKind, reason CloseReason) Event {
	e := Event{Client: c.server.describe(c, c.accountName()), Reason: string(reason)}
	if kind == EventConnected {
		e.Client.RTT = 0
		return e
	}
	last := c.snapshot()
	stop := last.Stop
	if stop.IsZero() {
		stop = last.LastActivity
	}
	stop = stop.UTC()
	e.Client.Stop = &stop
	e.Sent.Msgs, e.Sent.Bytes = last.InMsgs, last.InBytes
	e.Received.Msgs, e.Received.Bytes = last.OutMsgs, last.OutBytes
	return e
}

// describe is all that is known of c, as events tell it.
func (s *Server) describe(c *client, account string) *server.ClientInfo {
	info := &server.ClientInfo{Account: account}
	c.describe(info, true)
	info.NameTag = s.accountLabel(account)
	return info
}

// UserInfo tells a connection who it is and what it may do.
func (s *Server) UserInfo(id bus.Identity) (*server.UserInfo, error) {
	s.mu.Lock()
	c := s.clients[id.ID]
	s.mu.Unlock()
	if c == nil {
		return nil, ErrNoClient
	}
	return c.userInfo(), nil
}

// LameDuckClient tells one client that the server goes, so that it connects elsewhere, and reports whether it is there.
func (s *Server) LameDuckClient(cid uint64) bool {
	s.mu.Lock()
	c := s.clients[cid]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	info := s.currentInfo()
	info.LameDuck = true
	c.enqueue(string(c.infoLine(info)))
	return true
}

// userInfo is what a user is told about itself.
func (c *client) userInfo() *server.UserInfo {
	info := &server.UserInfo{Account: c.accountName(), UserID: c.describedUser()}
	info.AccountName = c.server.accountLabel(info.Account)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login == nil {
		return info
	}
	info.UserName = c.login.Name
	info.Permissions = c.login.Permissions.Public()
	if !c.login.Deadline.IsZero() {
		info.Expires = time.Until(c.login.Deadline).Truncate(time.Second)
	}
	return info
}

func (c *client) describedUser() string {
	var info server.ClientInfo
	c.describe(&info, true)
	return info.User
}

// accountLabel is the name that people gave an account: in operator mode that is in its claims.
func (s *Server) accountLabel(account string) string {
	if s.options.Accounts != nil {
		if a := s.options.Accounts.Loaded(account); a != nil {
			return a.Label()
		}
	}
	return account
}
