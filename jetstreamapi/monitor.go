package jetstreamapi

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

const defaultJszLimit = 1024

// Jsz returns what /jsz shows.
func (s *Service) Jsz(o *server.JSzOptions) *server.JSInfo {
	opts := server.JSzOptions{}
	if o != nil {
		opts = *o
	}
	if opts.Consumer {
		opts.Streams = true
	}
	if opts.Streams && opts.Account == "" {
		opts.Accounts = true
	}
	accounts := s.sortedAccounts()
	limits := s.opts.Limits
	info := &server.JSInfo{
		JetStreamStats: s.stats(),
		ID:             s.opts.ServerID,
		Now:            time.Now().UTC(),
		Config:         s.config(),
		Limits:         &limits,
		Total:          len(accounts),
	}
	for _, a := range accounts {
		a.addTotals(info, &opts)
	}
	for _, a := range shownAccounts(accounts, &opts) {
		info.AccountDetails = append(info.AccountDetails, a.detail(&opts))
	}
	return info
}

// JszAccount returns one account's part of /jsz, nil if it has no JetStream.
func (s *Service) JszAccount(o *server.JSzOptions) *server.AccountDetail {
	a := s.account(o.Account)
	if a == nil {
		return nil
	}
	return a.detail(o)
}

// shownAccounts picks the accounts whose details are asked for.
func shownAccounts(all []*account, o *server.JSzOptions) []*account {
	for i, a := range all {
		if o.Account != "" && a.name == o.Account {
			return all[i : i+1]
		}
	}
	if !o.Accounts {
		return nil
	}
	limit := o.Limit
	if limit <= 0 {
		limit = defaultJszLimit
	}
	return page(all, paged(len(all), o.Offset, limit))
}

// stats returns the totals of all accounts, as varz and jsz show them.
func (s *Service) stats() server.JetStreamStats {
	return server.JetStreamStats{
		Memory:         nonNegative(s.used.memory.Load()),
		Store:          nonNegative(s.used.store.Load()),
		ReservedMemory: nonNegative(s.used.reservedMem.Load()),
		ReservedStore:  nonNegative(s.used.reserved.Load()),
		Accounts:       len(s.Accounts()),
		API: server.JetStreamAPIStats{
			Level: jsapi.APILevel, Total: s.apiTotal.Load(), Errors: s.apiErrors.Load(), Inflight: s.inflight(),
		},
	}
}

func (s *Service) inflight() uint64 {
	var n int64
	for _, a := range s.sortedAccounts() {
		n += a.inflight.Load()
	}
	return nonNegative(n)
}

func (s *Service) config() server.JetStreamConfig {
	return server.JetStreamConfig{
		MaxMemory:    s.maxMemory.Load(),
		MaxStore:     s.maxStore.Load(),
		StoreDir:     s.opts.Storage.Dir,
		SyncInterval: s.opts.SyncInterval,
		SyncAlways:   true,
		Domain:       s.opts.Domain,
		CompressOK:   true,
		Strict:       !s.opts.Lax,
	}
}

// Varz returns what /varz shows of JetStream.
func (s *Service) Varz() server.JetStreamVarz {
	cfg, stats, limits := s.config(), s.stats(), s.opts.Limits
	return server.JetStreamVarz{Config: &cfg, Stats: &stats, Limits: &limits}
}

// addTotals adds the account's streams to the totals of jsz.
func (a *account) addTotals(info *server.JSInfo, o *server.JSzOptions) {
	for _, e := range a.sortedStreams("") {
		info.Streams++
		if e.offline != nil {
			continue
		}
		st := e.log.State()
		info.Messages += st.Messages
		info.Bytes += st.Bytes
		a.mu.RLock()
		n := len(e.consumers)
		a.mu.RUnlock()
		info.Consumers += n
		if o.RaftGroups {
			info.StreamsLeader++
			info.ConsumersLeader += len(a.sortedConsumers(e))
		}
	}
}

// detail returns the account's part of jsz.
func (a *account) detail(o *server.JSzOptions) *server.AccountDetail {
	lim := a.limits.Load()
	d := &server.AccountDetail{
		Name: a.name,
		Id:   a.name,
		JetStreamStats: server.JetStreamStats{
			Memory: nonNegative(a.used.memory.Load()),
			Store:  nonNegative(a.used.store.Load()),
			// nats-server shows the account's limits here, -1 as the largest number.
			ReservedMemory: uint64(lim.MaxMemory), //nolint:gosec // see above
			ReservedStore:  uint64(lim.MaxStore),  //nolint:gosec // see above
			API:            server.JetStreamAPIStats{Total: a.apiTotal.Load(), Errors: a.apiErrors.Load()},
		},
		Streams: []server.StreamDetail{},
	}
	if !o.Streams && !o.Consumer {
		return d
	}
	for _, e := range a.sortedStreams("") {
		if e.offline == nil {
			d.Streams = append(d.Streams, e.detail(o))
		}
	}
	return d
}

// detail returns the stream's part of jsz. Consumers carry the cluster's leader: autoscalers look for it.
func (e *streamEntry) detail(o *server.JSzOptions) server.StreamDetail {
	d := server.StreamDetail{
		Name: e.name, Created: e.created, Cluster: e.acc.svc.clusterInfo(), State: e.state(false, ""),
	}
	d.Mirror, d.Sources = e.origins()
	if o.Config {
		cfg := *e.config()
		d.Config = &cfg
	}
	if !o.Consumer {
		return d
	}
	for _, c := range e.acc.sortedConsumers(e) {
		if c.offline != nil {
			continue
		}
		info := c.info()
		info.Cluster = e.acc.svc.clusterInfo()
		if !o.Config {
			info.Config = nil
		}
		d.Consumer = append(d.Consumer, info)
	}
	return d
}
