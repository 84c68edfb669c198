package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Reasons why an authorization service gave no answer.
var (
	errNoService = errors.New("no authorization service listens")
	errNoAnswer  = errors.New("the authorization service did not answer in time")
)

// calloutHost is the server as authorization services see it under these options.
func (o *Options) calloutHost() *auth.Host {
	if o.host == nil {
		return nil
	}
	h, s := *o.host, o.Server
	h.Timeout = seconds(s.AuthTimeout)
	h.ID.Name, h.ID.Host, h.ID.Version = cmp.Or(s.ServerName, h.ID.ID), s.Host, o.Version
	h.ID.Cluster, h.ID.Tags = s.Cluster.Name, s.Tags
	return &h
}

// answerSink keeps the first message that comes.
type answerSink chan []byte

// Deliver implements bus.Sink.
func (a answerSink) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		select {
		case a <- bytes.Clone(batch[i].Msg.Data):
		default: // one answer is all that is waited for
		}
	}
	return nil
}

// call publishes a request in an account and waits for the answer.
func (s *Server) call(account, subject string, header, data []byte, timeout time.Duration) ([]byte, error) {
	answer := make(answerSink, 1)
	session, err := s.options.Bus.Open(bus.KindService, bus.Identity{Account: account, NoEcho: true}, answer)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	inbox := "$SYS._INBOX." + nuid.Next()
	if _, err := session.Subscribe("1", inbox, ""); err != nil {
		return nil, err
	}
	heard := session.Publish(&bus.Msg{Subject: []byte(subject), Reply: []byte(inbox), Header: header, Data: data})
	session.Flush()
	if !heard {
		return nil, errNoService
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case b := <-answer:
		return b, nil
	case <-limit.C:
		return nil, errNoAnswer
	case <-s.stopped:
		return nil, ErrStopped
	}
}
