package monitor

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

func (s *Server) subsz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	o := &server.SubszOptions{
		Subscriptions: q.boolean("subs"),
		Offset:        q.number("offset"),
		Limit:         q.number("limit"),
		Account:       q.text("acc"),
		Test:          q.text("test"),
	}
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	z, err := s.Subsz(o)
	if err != nil {
		s.badRequest(w, err)
		return
	}
	s.answer(w, z)
}

// Subsz lists subscriptions. A nil o asks for the defaults.
func (s *Server) Subsz(o *server.SubszOptions) (*server.Subsz, error) {
	if o == nil {
		o = &server.SubszOptions{}
	}
	limit := o.Limit
	if limit <= 0 {
		limit = server.DefaultSubListSize
	}
	if o.Test != "" && !server.IsValidLiteralSubject(o.Test) {
		return nil, fmt.Errorf("invalid test subject, must be valid publish subject: %s", o.Test)
	}
	matching := s.o.Core.Matching(o.Account)
	z := &server.Subsz{
		ID: s.o.Core.Info().ID, Now: time.Now().UTC(), SublistStats: &matching, Offset: max(o.Offset, 0), Limit: limit,
	}
	if !o.Subscriptions {
		return z, nil
	}
	subs := []server.SubDetail{}
	for _, c := range s.o.Core.Connections(Wanted{Subs: true}) {
		if o.Account != "" && c.Account != o.Account {
			continue
		}
		for _, d := range c.Subs {
			if o.Test == "" || server.SubjectsCollide(o.Test, d.Subject) {
				d.Account, d.AccountTag = c.Account, cmp.Or(c.NameTag, c.Account)
				subs = append(subs, d)
			}
		}
	}
	z.Total = len(subs)
	z.Subs = page(subs, z.Offset, limit)
	return z, nil
}

func (s *Server) accountz(w http.ResponseWriter, r *http.Request) {
	z, err := s.Accountz(r.URL.Query().Get("acc"))
	if err != nil {
		s.badRequest(w, err)
		return
	}
	s.answer(w, z)
}

// Accountz lists the accounts, or tells about the one called name.
func (s *Server) Accountz(name string) (*server.Accountz, error) {
	z := &server.Accountz{
		ID: s.o.Core.Info().ID, Now: time.Now().UTC(), SystemAccount: systemAccount(s.options.Load()),
	}
	if name == "" {
		z.Accounts = []string{}
		for _, a := range s.accounts() {
			z.Accounts = append(z.Accounts, a.Name)
		}
		return z, nil
	}
	list := s.accounts()
	i := slices.IndexFunc(list, func(a Account) bool { return a.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("Account %s does not exist", name)
	}
	a := list[i]
	matching := s.o.Core.Matching(name)
	z.Account = &server.AccountInfo{
		AccountName: a.Name, NameTag: cmp.Or(a.Label, a.Name), LastUpdate: s.started.UTC(),
		IsSystem: a.System, Complete: true, JetStream: a.JetStream, ClientCnt: a.Connections, SubCnt: a.Subscriptions,
		Sublist: &matching,
	}
	addClaims(z.Account, &a)
	if s.o.Links != nil {
		l := s.o.Links(name)
		z.Account.Exports, z.Account.Imports, z.Account.Mappings = l.Exports, l.Imports, l.Mappings
	}
	return z, nil
}

// addClaims adds what an account's claims say, in operator mode.
func addClaims(info *server.AccountInfo, a *Account) {
	if a.Claims == nil {
		return
	}
	c := a.Claims
	info.Jwt, info.Claim, info.IssuerKey, info.Tags = a.Token, c, c.Issuer, c.Tags
	info.Expired = c.Expires != 0 && c.Expires <= time.Now().Unix()
	var found jwt.ValidationResults
	c.Validate(&found)
	for _, i := range found.Issues {
		info.Vr = append(info.Vr, server.ExtVrIssues{
			Description: i.Description, Blocking: i.Blocking, Time: i.TimeCheck,
		})
	}
	for user, at := range c.Revocations {
		if info.RevokedUser == nil {
			info.RevokedUser = map[string]time.Time{}
		}
		info.RevokedUser[user] = time.Unix(at, 0)
	}
}

// accounts returns the accounts by name.
func (s *Server) accounts() []Account {
	list := s.o.Core.Accounts()
	slices.SortFunc(list, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *Server) accstatz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	unused := q.boolean("unused")
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	s.answer(w, s.AccountStatz(&server.AccountStatzOptions{IncludeUnused: unused}))
}

// AccountStatz returns the totals of the accounts that o names, or of all.
func (s *Server) AccountStatz(o *server.AccountStatzOptions) *server.AccountStatz {
	z := &server.AccountStatz{ID: s.o.Core.Info().ID, Now: time.Now().UTC(), Accounts: []*server.AccountStat{}}
	for _, a := range s.accounts() {
		named := slices.Contains(o.Accounts, a.Name)
		if len(o.Accounts) > 0 && !named || !o.IncludeUnused && a.Connections == 0 {
			continue
		}
		z.Accounts = append(z.Accounts, &server.AccountStat{
			Account: a.Name, Name: cmp.Or(a.Label, a.Name), Conns: a.Connections,
			TotalConns: a.Connections, // nats-server's total is that of clients and leaf nodes, now
			NumSubs:    a.Subscriptions, SlowConsumers: a.SlowConsumers,
			Sent:     clientData(a.OutMsgs, a.OutBytes),
			Received: clientData(a.InMsgs, a.InBytes),
		})
	}
	return z
}

// clientData is traffic with clients alone.
func clientData(msgs, bytes int64) server.DataStats {
	return server.DataStats{
		MsgBytes: server.MsgBytes{Msgs: msgs, Bytes: bytes},
		Gateways: &server.MsgBytes{}, Routes: &server.MsgBytes{}, Leafs: &server.MsgBytes{},
	}
}
