package system

import (
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/subjects"
)

// requestor is who asks through an import: the import says so in a header.
func (r *request) requestor() (server.ClientInfo, bool) {
	var info server.ClientInfo
	err := json.Unmarshal([]byte(headerOf(r.header, "Nats-Request-Info")), &info)
	return info, err == nil
}

// userInfo tells a user what it may do.
func (r *request) userInfo() (any, error) {
	who, known := r.requestor()
	if !known || who.ID == 0 {
		return nil, badRequestError{errors.New("not known who asks")}
	}
	return r.s.o.Gateway.UserInfo(bus.Identity{Account: who.Account, ID: who.ID})
}

// jszOf tells about JetStream of one account.
func (r *request) jszOf(account string, o *server.JSzOptions) (any, error) {
	o.Account = account
	j, err := r.s.o.Monitor.Jsz(o)
	var none *server.AccountDetail // shown as null
	switch {
	case err != nil:
		return none, err
	case j.Disabled:
		return none, server.NewJSNotEnabledError()
	}
	for _, detail := range j.AccountDetails {
		if detail.Name == account || detail.Id == account {
			return detail, nil
		}
	}
	if _, err := r.s.o.Monitor.Accountz(account); err != nil {
		return none, fmt.Errorf("account %q not found", account)
	}
	return none, fmt.Errorf("account %q not jetstream enabled", account)
}

// kick closes a connection.
func (r *request) kick() error {
	var o server.KickClientReq
	if err := r.decode(&o); err != nil {
		return err
	}
	if !r.s.o.Gateway.Kick(o.CID) {
		return errors.New("no such client or leafnode id")
	}
	return nil
}

// lameDuck tells one client to go elsewhere.
func (r *request) lameDuck() error {
	var o server.LDMClientReq
	if err := r.decode(&o); err != nil {
		return err
	}
	if !r.s.o.Gateway.LameDuckClient(o.CID) {
		return errors.New("no such client id")
	}
	return nil
}

// countSubscribers answers how many subscriptions of the asker's account hear a subject, or are within a filter; a
// queue group may follow it.
func (r *request) countSubscribers() {
	account := r.s.o.Account
	if who, known := r.requestor(); known {
		account = who.Account
		if who.Service != "" {
			account = who.Service
		}
	}
	filter, queue, _ := strings.Cut(strings.TrimSpace(string(r.body)), " ")
	r.send(r.s.subscribers(account, filter, queue))
}

// countNamed answers the same about an account that the request names.
func (r *request) countNamed() {
	var o struct {
		Account string `json:"acc"`
		Subject string `json:"subject"`
		Queue   []byte `json:"queue"`
	}
	if err := json.Unmarshal(r.body, &o); err != nil || !slices.Contains(r.s.o.Bus.Accounts(), o.Account) {
		return
	}
	r.send(r.s.subscribers(o.Account, o.Subject, string(o.Queue)))
}

func (s *Service) subscribers(account, filter, queue string) int {
	n := 0
	s.o.Bus.EachSubscription(account, func(sub *bus.Subscription, kind bus.Kind, _ bus.Identity) bool {
		hears := subjects.Match(sub.Filter, filter)
		if subjects.HasWildcard(filter) {
			hears = subjects.SubsetOf(sub.Filter, filter)
		}
		if kind == bus.KindClient && hears && (queue == "" || queue == sub.Queue) {
			n++
		}
		return true
	})
	return n
}

// connections tells how many connections an account has, unless there are none.
func (r *request) connections(account string) {
	if m := r.s.connectionsOf(account); m != nil && m.Conns > 0 {
		r.send(m)
	}
}

// connectionsOf is the event about an account's connections, nil if there is no such account.
func (s *Service) connectionsOf(account string) *server.AccountNumConns {
	z := s.o.Monitor.AccountStatz(&server.AccountStatzOptions{Accounts: []string{account}, IncludeUnused: true})
	if len(z.Accounts) == 0 {
		return nil
	}
	return &server.AccountNumConns{
		TypedEvent: typed(server.AccountNumConnsMsgType), Server: s.info(), AccountStat: *z.Accounts[0],
	}
}

// statsz answers with the server's figures; without a reply they go to who listens to all servers'.
func (r *request) statsz() {
	var o server.StatszEventOptions
	switch err := r.decode(&o); {
	case errors.Is(err, errSkip):
	case err != nil:
		r.answer(nil, err)
	case r.reply == "":
		r.s.broadcastStatsz()
	default:
		r.send(r.s.stats())
	}
}

// stats are the server's figures.
func (s *Service) stats() *server.ServerStatsMsg {
	v := s.o.Monitor.Varz()
	data := func(msgs, bytes int64) server.DataStats {
		return server.DataStats{MsgBytes: server.MsgBytes{Msgs: msgs, Bytes: bytes}}
	}
	out := &server.ServerStatsMsg{Server: s.info(), Stats: server.ServerStats{
		Start: v.Start, Mem: v.Mem, Cores: v.Cores, CPU: v.CPU, MaxProcs: v.MaxProcs, MemLimit: v.MemLimit,
		Connections: v.Connections, TotalConnections: v.TotalConnections, NumSubs: v.Subscriptions,
		Sent: data(v.OutMsgs, v.OutBytes), SentToClients: data(v.OutClientMsgs, v.OutClientBytes),
		Received: data(v.InMsgs, v.InBytes), ReceivedFromClients: data(v.InClientMsgs, v.InClientBytes),
		SlowConsumers: v.SlowConsumers, StaleConnections: v.StaleConnections, StalledClients: v.StalledClients,
		ActiveServers: 1,
	}}
	st := &out.Stats
	for _, a := range s.o.Monitor.AccountStatz(&server.AccountStatzOptions{}).Accounts {
		if a.Conns > 0 {
			st.ActiveAccounts++
		}
	}
	if v.SlowConsumersStats != nil && v.SlowConsumersStats.Clients > 0 {
		st.SlowConsumersStats = v.SlowConsumersStats
	}
	if v.StaleConnectionStats != nil && v.StaleConnectionStats.Clients > 0 {
		st.StaleConnectionStats = v.StaleConnectionStats
	}
	if v.JetStream.Config != nil {
		js := v.JetStream
		config := *js.Config
		config.StoreDir = ""
		js.Config = &config
		st.JetStream = &js
	}
	return out
}

// expvarz is what package expvar knows.
func expvarz() *server.ExpvarzStatus {
	raw := func(name string) json.RawMessage {
		if v := expvar.Get(name); v != nil {
			return json.RawMessage(v.String())
		}
		return nil
	}
	return &server.ExpvarzStatus{Memstats: raw("memstats"), Cmdline: raw("cmdline")}
}
