package gateway

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// protoVersion is the protocol version of INFO.
const protoVersion = 1

// initInfo builds what INFO says to everybody. s.mu is held.
func (s *Server) initInfo() error {
	o := s.options.Server
	s.info = wire.Info{
		ServerID: s.id, ServerName: s.name, Version: s.options.Version, Proto: protoVersion,
		GitCommit: s.options.GitCommit, Go: runtime.Version(), Host: o.Host, Port: s.port,
		Headers: !o.NoHeaderSupport, MaxPayload: o.MaxPayload, JetStream: s.options.JetStream,
		Cluster: o.Cluster.Name, Domain: o.JetStreamDomain, XKey: s.xkey, APILevel: server.JSApiLevel,
	}
	return s.advertise(o.ClientAdvertise)
}

// advertise has INFO name an address that is not the one listened on; empty: that one. s.mu is held.
func (s *Server) advertise(address string) (err error) {
	host, port := s.options.Server.Host, s.port
	if address != "" {
		if host, port, err = advertised(address, s.port); err != nil {
			return err
		}
	}
	s.info.Host, s.info.Port = host, port
	return nil
}

// advertised splits client_advertise, a host with or without a port.
func advertised(text string, port int) (string, int, error) {
	host, p, err := net.SplitHostPort(text)
	if err != nil {
		return text, port, nil //nolint:nilerr // no port given
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("client_advertise %q: %w", text, err)
	}
	if n == 0 {
		return host, port, nil
	}
	return host, int(n), nil
}

// currentInfo returns what INFO says now to a client that has logged in.
func (s *Server) currentInfo() wire.Info {
	s.mu.Lock()
	info := s.info
	info.ConnectURLs = slices.Clone(info.ConnectURLs)
	info.LameDuck = s.state == stateLameDuck
	s.mu.Unlock()
	set := s.settings.Load()
	info.AuthRequired = set.auth.Required()
	info.MaxPayload = set.MaxPayload
	info.TLSRequired, info.TLSAvailable = set.tlsRequired(), set.tlsAvailable()
	info.TLSVerify = set.TLSConfig != nil && set.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert
	return info
}

// infoLine returns the INFO line for c.
func (c *client) infoLine(info wire.Info) []byte {
	info.ClientID = c.cid
	if !c.unproxied {
		info.ClientIP = c.remote().host
	}
	c.mu.Lock()
	if c.passage == nil {
		info.MaxPayload = c.maxPayload(c.login, c.server.settings.Load())
	}
	c.mu.Unlock()
	doc, err := json.Marshal(&info)
	if err != nil { // strings and numbers always marshal
		panic("gateway: marshal INFO: " + err.Error())
	}
	return wire.AppendInfo(nil, doc)
}
