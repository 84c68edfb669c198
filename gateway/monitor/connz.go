package monitor

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func (s *Server) connz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	o := &server.ConnzOptions{
		Sort:       server.SortOpt(q.text("sort")),
		Username:   q.boolean("auth"),
		Offset:     q.number("offset"),
		Limit:      q.number("limit"),
		CID:        q.id("cid"),
		MQTTClient: q.text("mqtt_client"),
		State:      q.state(),
		User:       q.text("user"),
		Account:    q.text("acc"),
	}
	o.Subscriptions, o.SubscriptionsDetail = q.subscriptions()
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	c, err := s.Connz(o)
	if err != nil {
		s.badRequest(w, err)
		return
	}
	s.answer(w, c)
}

// Connz lists connections as nats-server does: selected, sorted, one page of them. A nil o asks for the defaults.
func (s *Server) Connz(o *server.ConnzOptions) (*server.Connz, error) {
	o, err := connzDefaults(o)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	c := &server.Connz{ID: s.o.Core.Info().ID, Now: now, Offset: o.Offset, Limit: o.Limit, Conns: server.ConnInfos{}}
	withSubs := o.Subscriptions || o.SubscriptionsDetail || o.FilterSubject != ""
	var all []Connection
	if o.State == server.ConnOpen || o.State == server.ConnAll {
		all = append(all, s.o.Core.Connections(Wanted{Subs: withSubs})...)
	}
	if o.State == server.ConnClosed || o.State == server.ConnAll {
		all = append(all, s.o.Core.Connections(Wanted{Closed: true, Subs: withSubs})...)
	}
	inAccount := slices.DeleteFunc(all, func(c Connection) bool { return o.Account != "" && c.Account != o.Account })
	c.Total = len(inAccount)
	chosen := slices.DeleteFunc(inAccount, func(c Connection) bool { return !selected(&c, o) })
	infos := make([]*server.ConnInfo, len(chosen))
	for i := range chosen {
		infos[i] = shownConn(&chosen[i], o, now)
	}
	slices.SortStableFunc(infos, order(o.Sort, now))
	c.Conns = append(c.Conns, page(infos, o.Offset, o.Limit)...)
	c.NumConns = len(c.Conns)
	return c, nil
}

// connzDefaults returns o complete, or why it makes no sense.
func connzDefaults(o *server.ConnzOptions) (*server.ConnzOptions, error) {
	var full server.ConnzOptions
	if o != nil {
		full = *o
	}
	full.Offset = max(full.Offset, 0)
	if full.Sort == "" {
		full.Sort = server.ByCid
	}
	if full.Limit <= 0 {
		full.Limit = server.DefaultConnListSize
	}
	if full.CID > 0 {
		full.Limit = 1
	}
	if full.FilterSubject == ">" {
		full.FilterSubject = ""
	}
	closed := full.State == server.ConnClosed
	switch {
	case !full.Sort.IsValid():
		return nil, fmt.Errorf("invalid sorting option: %s", full.Sort)
	case full.Sort == server.ByStop && !closed:
		return nil, errors.New("sort by stop only valid on closed connections")
	case full.Sort == server.ByReason && !closed:
		return nil, errors.New("sort by reason only valid on closed connections")
	case full.FilterSubject != "" && full.Account == "":
		return nil, errors.New("filter by subject only valid with account filtering")
	}
	return &full, nil
}

// selected reports whether o asks for c.
func selected(c *Connection, o *server.ConnzOptions) bool {
	switch {
	case o.CID > 0 && c.Cid != o.CID, o.User != "" && c.User != o.User,
		o.MQTTClient != "" && c.MQTTClient != o.MQTTClient:
		return false
	}
	return o.FilterSubject == "" || slices.ContainsFunc(c.Subs, func(d server.SubDetail) bool {
		return server.SubjectsCollide(o.FilterSubject, d.Subject)
	})
}

// shownConn is c with what o asks for and without what it does not.
func shownConn(c *Connection, o *server.ConnzOptions, now time.Time) *server.ConnInfo {
	ci := c.ConnInfo
	end := now
	if ci.Stop != nil {
		end = *ci.Stop
	}
	ci.Uptime, ci.Idle = uptime(end.Sub(ci.Start)), uptime(end.Sub(ci.LastActivity))
	ci.AuthorizedUser, ci.Account, ci.Subs, ci.SubsDetail = "", "", nil, nil
	switch {
	case o.SubscriptionsDetail:
		ci.SubsDetail = c.Subs
	case o.Subscriptions:
		for _, d := range c.Subs {
			ci.Subs = append(ci.Subs, d.Subject)
		}
	}
	if !o.Username || ci.Stop != nil { // as in nats-server
		ci.TLSPeerCerts = nil
	}
	if !o.Username {
		ci.JWT, ci.IssuerKey, ci.NameTag, ci.Tags = "", "", "", nil
		return &ci
	}
	ci.AuthorizedUser = c.User
	if c.Account != server.DEFAULT_GLOBAL_ACCOUNT {
		ci.Account = c.Account
	} else if ci.Stop != nil {
		ci.NameTag = ""
	}
	return &ci
}

// order compares connections: by id, start and uptime ascending, by reason alphabetically, all others with the largest
// first.
func order(by server.SortOpt, now time.Time) func(a, b *server.ConnInfo) int {
	descending := map[server.SortOpt]func(c *server.ConnInfo) int64{
		server.BySubs:     func(c *server.ConnInfo) int64 { return int64(c.NumSubs) },
		server.ByPending:  func(c *server.ConnInfo) int64 { return int64(c.Pending) },
		server.ByOutMsgs:  func(c *server.ConnInfo) int64 { return c.OutMsgs },
		server.ByInMsgs:   func(c *server.ConnInfo) int64 { return c.InMsgs },
		server.ByOutBytes: func(c *server.ConnInfo) int64 { return c.OutBytes },
		server.ByInBytes:  func(c *server.ConnInfo) int64 { return c.InBytes },
		server.ByLast:     func(c *server.ConnInfo) int64 { return c.LastActivity.UnixNano() },
		server.ByIdle:     func(c *server.ConnInfo) int64 { return int64(now.Sub(c.LastActivity)) },
		server.ByUptime:   func(c *server.ConnInfo) int64 { return -int64(lifetime(c, now)) },
		server.ByStop:     func(c *server.ConnInfo) int64 { return stop(c, now).UnixNano() },
		server.ByRTT:      roundTrip,
	}
	if key, ok := descending[by]; ok {
		return func(a, b *server.ConnInfo) int { return cmp.Or(cmp.Compare(key(b), key(a)), cmp.Compare(a.Cid, b.Cid)) }
	}
	if by == server.ByReason {
		return func(a, b *server.ConnInfo) int { return cmp.Compare(a.Reason, b.Reason) }
	}
	return func(a, b *server.ConnInfo) int { return cmp.Compare(a.Cid, b.Cid) }
}

func stop(c *server.ConnInfo, now time.Time) time.Time {
	if c.Stop == nil {
		return now
	}
	return *c.Stop
}

func lifetime(c *server.ConnInfo, now time.Time) time.Duration { return stop(c, now).Sub(c.Start) }

// roundTrip is a connection's round trip time in nanoseconds; 0 when it is not known yet.
func roundTrip(c *server.ConnInfo) int64 {
	d, err := time.ParseDuration(c.RTT)
	if err != nil {
		return 0
	}
	return int64(d)
}

// uptime writes d as nats-server does: 1y2d3h4m5s, from the largest unit that is not zero.
func uptime(d time.Duration) string {
	sec := int64(max(d, 0) / time.Second)
	minutes, hours, days := sec/60, sec/3600, sec/86400
	switch years := days / 365; {
	case years > 0:
		return fmt.Sprintf("%dy%dd%dh%dm%ds", years, days%365, hours%24, minutes%60, sec%60)
	case days > 0:
		return fmt.Sprintf("%dd%dh%dm%ds", days, hours%24, minutes%60, sec%60)
	case hours > 0:
		return fmt.Sprintf("%dh%dm%ds", hours, minutes%60, sec%60)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, sec%60)
	}
	return fmt.Sprintf("%ds", sec)
}
