package main

import (
	"context"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// durablesTime bounds the question to the servers upstream that a scrape waits for.
const durablesTime = 2 * time.Second

// durables are the durable consumers of the servers upstream and of the streams that were moved here, each from where
// it is served. They are all of them when the servers' pages (bus.monitor) answer.
func (a *app) durables(fn func(metrics.Durable)) bool {
	stood := make(map[cutover.Scope]bool) // asked once: a stream that is moved meanwhile must not be told twice
	here := func(account, stream string) bool {
		s := cutover.Scope{Account: account, Stream: stream}
		if _, asked := stood[s]; !asked {
			stood[s] = a.mover != nil && a.mover.here(account, stream)
		}
		return stood[s]
	}
	ctx, cancel := context.WithTimeout(context.Background(), durablesTime)
	defer cancel()
	j, err := a.nats.pages.Jsz(ctx, &server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Config: true})
	if err == nil {
		for _, d := range j.AccountDetails {
			for i := range d.Streams {
				if st := &d.Streams[i]; !here(d.Name, st.Name) {
					upstreamDurables(d.Name, st, fn)
				}
			}
		}
	}
	if a.mover != nil {
		for _, l := range a.streams.svc.Lags() {
			if here(l.Account, l.Stream) {
				fn(durable(l))
			}
		}
	}
	return err == nil
}

// upstreamDurables are the durables of a stream on a server upstream. Ages of messages are not known of those.
func upstreamDurables(account string, st *server.StreamDetail, fn func(metrics.Durable)) {
	for _, c := range st.Consumer {
		if c.Config == nil || c.Config.Durable == "" {
			continue
		}
		d := metrics.Durable{
			Account: account, Stream: st.Name, Consumer: c.Name, Created: c.Created,
			Pending: c.NumPending, AckPending: count(c.NumAckPending), Waiting: count(c.NumWaiting),
			Filters: c.Config.FilterSubjects, Elsewhere: true,
		}
		switch {
		case c.Config.FilterSubject != "":
			d.Filters = []string{c.Config.FilterSubject}
		case len(d.Filters) == 0 && st.Config != nil:
			d.Filters = st.Config.Subjects
		}
		if c.Delivered.Last != nil {
			d.Delivered = *c.Delivered.Last
		}
		if c.AckFloor.Last != nil {
			d.Acked = *c.AckFloor.Last
		}
		fn(d)
	}
}
