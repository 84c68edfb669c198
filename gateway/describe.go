package gateway

import (
	"encoding/json"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// ClientInfo returns what services, and events about them, are told of a party: its account and round trip time, and if
// detailed everything else too. Of a party that is no connection, or not any more, only the account is known.
//
//nolint:revive // detailed is share of the import
func (s *Server) ClientInfo(id bus.Identity, detailed bool) *server.ClientInfo {
	info := &server.ClientInfo{Account: id.Account}
	if detailed {
		info.Server, info.Cluster = s.name, s.settings.Load().Cluster.Name
	}
	s.mu.Lock()
	c := s.clients[id.ID]
	s.mu.Unlock()
	if c != nil {
		c.describe(info, detailed)
	}
	return info
}

// describe adds what is known of c.
//
//nolint:revive // as for ClientInfo
func (c *client) describe(info *server.ClientInfo, detailed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info.RTT = c.rtt
	if !detailed {
		return
	}
	start := c.start
	info.Start, info.Host, info.ID = &start, c.remote().host, c.cid
	info.Name, info.Lang, info.Version = c.told.Name, c.told.Lang, c.told.Version
	info.User, info.Jwt = c.told.User, c.told.JWT
	if c.login != nil {
		if c.login.User != "" {
			info.User = c.login.User
		}
		info.IssuerKey, info.NameTag, info.Tags = c.login.IssuerKey(), c.login.Name, c.login.Tags
	}
	if info.User == "" {
		info.User = c.told.Token
	}
	info.Kind, info.ClientType = "Client", "nats"
	if c.web {
		info.ClientType = "websocket"
	}
}

// RequestInfo is ClientInfo as the header of a request to another account carries it. through is the account that
// passes the request on, empty if the requestor's own does.
func (s *Server) RequestInfo(id bus.Identity, share bool, through string) string {
	info := s.ClientInfo(id, share)
	info.Service = through
	b, err := json.Marshal(info)
	if err != nil { // strings and numbers always marshal
		panic("gateway: marshal client info: " + err.Error())
	}
	return string(b)
}
