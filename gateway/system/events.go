package system

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Observe implements gateway.Observer.
func (s *Service) Observe(kind gateway.EventKind, account string, describe func() gateway.Event) {
	switch kind {
	case gateway.EventConnected:
		s.countedAgain(account)
		s.event("$SYS.ACCOUNT."+account+".CONNECT", s.connected(describe))
	case gateway.EventDisconnected:
		s.countedAgain(account)
		s.event("$SYS.ACCOUNT."+account+".DISCONNECT", s.disconnected(describe))
	case gateway.EventAuthFailed:
		s.event("$SYS.SERVER."+s.id()+".CLIENT.AUTH.ERR", s.disconnected(describe))
		s.eventIn(account, accountAuthError, s.refused(account, describe))
	}
}

func (s *Service) connected(describe func() gateway.Event) func() any {
	return func() any {
		return &server.ConnectEventMsg{
			TypedEvent: typed(server.ConnectEventMsgType), Server: s.info(), Client: *describe().Client,
		}
	}
}

func (s *Service) disconnected(describe func() gateway.Event) func() any {
	return func() any {
		e := describe()
		return &server.DisconnectEventMsg{
			TypedEvent: typed(server.DisconnectEventMsgType), Server: s.info(), Client: *e.Client,
			Sent: e.Sent, Received: e.Received, Reason: e.Reason,
		}
	}
}

// accountAuthError is where an account's own users hear of logins that failed.
const accountAuthError = "$SYS.ACCOUNT.CLIENT.AUTH.ERR"

// refused is disconnected as an account's own users are told.
func (s *Service) refused(account string, describe func() gateway.Event) func() any {
	message := s.disconnected(describe)
	return func() any {
		m, _ := message().(*server.DisconnectEventMsg)
		m.Client.NameTag = cmp.Or(m.Client.NameTag, account)
		return m
	}
}

// countedAgain notes that an account's connections changed. The event about it tells the number as it is when it is
// sent, so one stands for many.
func (s *Service) countedAgain(account string) {
	if account == bus.DefaultAccount || !s.countedFor(account) {
		return
	}
	s.mu.Lock()
	waiting := s.changed[account]
	s.changed[account] = true
	s.mu.Unlock()
	if !waiting {
		s.push(func() { s.sendConnections(account) })
	}
}

// connectionSubjects are where the number of an account's connections is told; the second is its older form.
func connectionSubjects(account string) [2]string {
	return [2]string{"$SYS.ACCOUNT." + account + ".SERVER.CONNS", "$SYS.SERVER.ACCOUNT." + account + ".CONNS"}
}

func (s *Service) countedFor(account string) bool {
	subjects := connectionSubjects(account)
	return s.o.Bus.HasInterest(s.o.Account, subjects[0]) || s.o.Bus.HasInterest(s.o.Account, subjects[1])
}

func (s *Service) sendConnections(account string) {
	s.mu.Lock()
	delete(s.changed, account)
	s.mu.Unlock()
	m := s.connectionsOf(account)
	if m == nil {
		return
	}
	b, err := json.Marshal(m)
	if err != nil {
		s.o.Logger.Error("an event could not be encoded", slog.Any("error", err))
		return
	}
	for _, subject := range connectionSubjects(account) {
		s.publish(subject, nil, b)
	}
}

// Intervals of what is told without a cause.
const (
	firstStatsz      = 250 * time.Millisecond // then twice as long each time, up to statszEvery
	statszEvery      = 10 * time.Second
	connectionsEvery = 30 * time.Second
)

// tick tells what is told from time to time, and when lame duck mode begins.
func (s *Service) tick() {
	wait := firstStatsz
	statsz := time.NewTimer(wait)
	defer statsz.Stop()
	counts := time.NewTicker(connectionsEvery)
	defer counts.Stop()
	duck := s.o.Gateway.LameDuckBegan()
	for {
		select {
		case <-s.ended:
			return
		case <-duck:
			duck = nil
			s.event("$SYS.SERVER."+s.id()+".LAMEDUCK", func() any { info := s.info(); return &info })
		case <-statsz.C:
			wait = min(2*wait, statszEvery)
			statsz.Reset(wait)
			s.tellLost()
			s.broadcastStatsz()
		case <-counts.C:
			for _, a := range s.o.Monitor.AccountStatz(&server.AccountStatzOptions{}).Accounts {
				s.countedAgain(a.Account)
			}
		}
	}
}

// tellLost warns of events that found the queue full.
func (s *Service) tellLost() {
	if n := s.lost.Swap(0); n > 0 {
		s.o.Logger.Warn("{count} events of the system account were lost: more came than could be sent",
			slog.Uint64("count", n))
	}
}

func (s *Service) broadcastStatsz() {
	s.event("$SYS.SERVER."+s.id()+".STATSZ", func() any { return s.stats() })
}

// Measured takes the measurement of a request to a service and publishes it in the service's account.
func (s *Service) Measured(l bus.Latency) {
	requestor := s.o.Gateway.ClientInfo(l.Requestor, l.Share)
	var responder *server.ClientInfo
	if l.Responder != nil {
		responder = s.o.Gateway.ClientInfo(*l.Responder, true)
	}
	now := time.Now()
	s.push(func() {
		m := measurement(&l, requestor, responder, now)
		b, err := json.Marshal(m)
		if err != nil {
			s.o.Logger.Error("a measurement could not be encoded", slog.Any("error", err))
			return
		}
		s.publishIn(l.Account, l.Results, b)
	})
}

// measurement is l as it is published. Of the time between request and answer the service's part is what is left
// without the responder's round trip; the requestor's is added to the whole.
func measurement(l *bus.Latency, requestor, responder *server.ClientInfo, at time.Time) *server.ServiceLatency {
	m := &server.ServiceLatency{
		TypedEvent: typed(server.ServiceLatencyType), Status: l.Status, Error: l.Error,
		Requestor: requestor, Responder: responder, RequestStart: l.Start.Add(-requestor.RTT).UTC(),
	}
	m.RequestHeader, _ = l.Trace.(http.Header)
	if l.Status != http.StatusOK {
		return m
	}
	var rtt time.Duration
	if responder != nil {
		rtt = responder.RTT
	}
	m.ServiceLatency = max(l.Took-rtt, 0)
	m.TotalLatency = requestor.RTT + l.Took
	if rtt > 0 {
		m.SystemLatency = time.Since(at)
		m.TotalLatency += m.SystemLatency
	}
	return m
}

// publishIn sends a message in another account. Sessions are kept: there are as many as accounts that are told
// something.
func (s *Service) publishIn(account, subject string, data []byte) {
	session := s.abroad[account]
	if session == nil {
		var err error
		if session, err = s.o.Bus.Open(bus.KindService, bus.Identity{Account: account}, nil); err != nil {
			s.o.Logger.Error("an event could not be sent", slog.String("account", account), slog.Any("error", err))
			return
		}
		s.abroad[account] = session
	}
	session.Publish(&bus.Msg{Subject: []byte(subject), Data: data})
	_ = session.Flush()
}
