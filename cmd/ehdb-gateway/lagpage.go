package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi"
)

// lagPath is where the lag of consumers is told: of all, of an account's, of a stream's, or of one.
const (
	lagPath       = "/api/v1/lag"
	lagOfAccount  = lagPath + "/{account}"
	lagOfStream   = lagOfAccount + "/{stream}"
	lagOfConsumer = lagOfStream + "/{consumer}"
)

// lagFigures is what a consumer has still to do: of the messages that are stored and match its filters, those it has
// not acknowledged. They are counted, not inferred from a position. Figures that are not complete are not told: the
// page says why instead. Seconds are as in the metrics ehdb_consumer_….
type lagFigures struct {
	Account  string `json:"account"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`

	Lag         uint64      `json:"lag"`         // pending and ack_pending
	Pending     uint64      `json:"pending"`     // not delivered
	AckPending  uint64      `json:"ack_pending"` // delivered, not acknowledged
	Redelivered uint64      `json:"redelivered"` // of these, delivered more than once
	Waiting     uint64      `json:"waiting_pulls"`
	Filters     []filterLag `json:"filters,omitempty"`
	LastSeq     uint64      `json:"stream_last_seq"` // grows while somebody publishes

	// The ages of what is oldest are not known of consumers on servers upstream.
	OldestPending    *float64 `json:"oldest_pending_seconds,omitempty"`
	OldestAckPending *float64 `json:"oldest_ack_pending_seconds,omitempty"`
	LastDelivery     float64  `json:"last_delivery_age_seconds"`
	LastAck          float64  `json:"last_ack_age_seconds"`

	lagHead
}

// filterLag is what is pending for one filter of a consumer; for one without filters, of its stream.
type filterLag struct {
	Filter  string `json:"filter"`
	Pending uint64 `json:"pending"`
}

// lagHead says what the figures on a page are worth.
type lagHead struct {
	AsOf     *time.Time `json:"as_of,omitempty"`
	Source   string     `json:"source,omitempty"` // "ehdb" or "nats": who keeps the streams
	Complete bool       `json:"complete,omitempty"`
}

// lagQuery says whose lag; empty: of all.
type lagQuery struct{ account, stream, consumer string }

// lagSource tells the figures, ordered by account, stream and consumer, and who keeps the streams. An error that wraps
// jetstreamapi.ErrUnknown says that there is no such consumer, stream or account, any other that they are not known
// now.
type lagSource interface {
	lags(ctx context.Context, q lagQuery) (list []lagFigures, source string, err error)
}

// lagPages are the handlers of the lag pages.
func lagPages(source lagSource) map[string]http.Handler {
	page := lagPage(source)
	return map[string]http.Handler{lagPath: page, lagOfAccount: page, lagOfStream: page, lagOfConsumer: page}
}

// lagPage serves the lag pages. Answers that are no figures are plain text: a scaler that does not look at the status
// must not find JSON.
func lagPage(source lagSource) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
			return
		}
		q := lagQuery{r.PathValue("account"), r.PathValue("stream"), r.PathValue("consumer")}
		list, from, err := source.lags(r.Context(), q)
		switch {
		case errors.Is(err, jetstreamapi.ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		b, err := json.Marshal(lagAnswer(q, list, from))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n')) // who asked has gone
	})
}

// lagAnswer is the page: an object for one consumer, else one with a list.
func lagAnswer(q lagQuery, list []lagFigures, source string) any {
	now := time.Now().UTC()
	head := lagHead{AsOf: &now, Source: source, Complete: true}
	var total uint64
	for i := range list {
		list[i].Lag = list[i].Pending + list[i].AckPending
		total += list[i].Lag
	}
	if q.consumer != "" {
		list[0].lagHead = head
		return list[0]
	}
	return struct {
		Lag       uint64       `json:"lag"`
		Consumers []lagFigures `json:"consumers"`
		lagHead
	}{total, append([]lagFigures{}, list...), head}
}

// lags implements lagSource.
func (s *streams) lags(_ context.Context, q lagQuery) ([]lagFigures, string, error) {
	if err := s.Known(); err != nil {
		return nil, "", err
	}
	list, err := s.svc.LagsOf(q.account, q.stream, q.consumer)
	if err != nil {
		return nil, "", err
	}
	now, out := time.Now(), make([]lagFigures, len(list))
	for i := range list {
		l := &list[i]
		stats := l.Stats()
		pending, held := stats.OldestPending.Seconds(), stats.OldestAckPending.Seconds()
		out[i] = lagFigures{
			Account: l.Account, Stream: l.Stream, Consumer: l.Consumer,
			Pending: l.Pending, AckPending: count(l.AckPending), Redelivered: count(stats.Redelivered),
			Waiting: count(l.Waiting), LastSeq: l.LastSeq, Filters: filterLags(l),
			OldestPending: &pending, OldestAckPending: &held,
			LastDelivery: age(now, &l.Delivered, l.Created), LastAck: age(now, &l.Acked, l.Created),
		}
	}
	return out, "ehdb", nil
}

// filterLags is what is pending for each filter. A single one has all that is pending; for several it is looked up in
// the index.
func filterLags(l *jetstreamapi.Lag) []filterLag {
	filters := l.Filters
	if len(filters) == 0 {
		filters = l.Subjects
	}
	if len(filters) == 1 {
		return []filterLag{{filters[0], l.Pending}}
	}
	out := make([]filterLag, len(filters))
	for i, f := range filters {
		out[i] = filterLag{Filter: f}
		if l.Pending > 0 {
			out[i].Pending = l.Count(f)
		}
	}
	return out
}

// age is the time in seconds since last, or since made if there was none.
func age(now time.Time, last *time.Time, made time.Time) float64 {
	if last == nil || last.IsZero() {
		last = &made
	}
	return max(now.Sub(*last).Seconds(), 0)
}

func count(n int) uint64 { return uint64(max(n, 0)) } //nolint:gosec // not negative

// lags implements lagSource.
func (u *upstreams) lags(ctx context.Context, q lagQuery) ([]lagFigures, string, error) {
	j, err := u.pages.Jsz(ctx, &server.JSzOptions{
		Account: q.account, Accounts: q.account == "", Streams: true, Consumer: true, Config: true,
	})
	if err != nil {
		return nil, "", err
	}
	var out []lagFigures
	for _, a := range j.AccountDetails {
		if q.account != "" && a.Name != q.account && a.Id != q.account {
			continue
		}
		for i := range a.Streams {
			if st := &a.Streams[i]; q.stream == "" || st.Name == q.stream {
				out = append(out, upstreamLags(a.Name, st, q.consumer)...)
			}
		}
	}
	if len(out) == 0 && q.consumer != "" {
		return nil, "", fmt.Errorf("consumer %q of stream %q of account %q: %w", q.consumer, q.stream, q.account,
			jetstreamapi.ErrUnknown)
	}
	return out, "nats", nil
}

// upstreamLags is the lag of a stream's consumers on a server upstream; of one, if its name is not empty.
func upstreamLags(account string, st *server.StreamDetail, name string) []lagFigures {
	var out []lagFigures
	for _, c := range st.Consumer {
		if name != "" && c.Name != name {
			continue
		}
		f := lagFigures{
			Account: account, Stream: st.Name, Consumer: c.Name,
			Pending: c.NumPending, AckPending: count(c.NumAckPending),
			Redelivered: count(c.NumRedelivered), Waiting: count(c.NumWaiting), LastSeq: st.State.LastSeq,
			LastDelivery: age(c.TimeStamp, c.Delivered.Last, c.Created),
			LastAck:      age(c.TimeStamp, c.AckFloor.Last, c.Created),
		}
		if c.Config != nil && c.Config.FilterSubject != "" {
			f.Filters = []filterLag{{c.Config.FilterSubject, c.NumPending}}
		}
		out = append(out, f)
	}
	return out
}

// noStreams is a server without JetStream.
type noStreams struct{}

func (noStreams) lags(context.Context, lagQuery) ([]lagFigures, string, error) {
	return nil, "", fmt.Errorf("JetStream is off on this server: %w", jetstreamapi.ErrUnknown)
}
