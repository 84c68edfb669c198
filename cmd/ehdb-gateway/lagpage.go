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

// lagPath is where the lag of one consumer is told.
const lagPath = "/api/v1/lag/{account}/{stream}/{consumer}"

// lagFigures is what a consumer has still to do. Figures that are not complete are not told: the page says why instead.
type lagFigures struct {
	Lag        uint64    `json:"lag"` // pending and ack_pending
	Pending    uint64    `json:"pending"`
	AckPending uint64    `json:"ack_pending"`
	AsOf       time.Time `json:"as_of"`
	Source     string    `json:"source"` // "ehdb" or "nats": who keeps the stream
	Complete   bool      `json:"complete"`
}

// lagSource tells the figures. An error that wraps jetstreamapi.ErrUnknown says that there is no such consumer, any
// other that they are not known now.
type lagSource interface {
	lag(ctx context.Context, account, stream, consumer string) (lagFigures, error)
}

// lagPage serves lagPath. Answers that are no figures are plain text: a scaler that does not look at the status must
// not find JSON.
func lagPage(source lagSource) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
			return
		}
		f, err := source.lag(r.Context(), r.PathValue("account"), r.PathValue("stream"), r.PathValue("consumer"))
		switch {
		case errors.Is(err, jetstreamapi.ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		f.Lag, f.AsOf, f.Complete = f.Pending+f.AckPending, time.Now().UTC(), true
		b, err := json.Marshal(f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n')) // who asked has gone
	})
}

// lag implements lagSource.
func (s *streams) lag(_ context.Context, account, stream, consumer string) (lagFigures, error) {
	if err := s.Known(); err != nil {
		return lagFigures{}, err
	}
	l, err := s.svc.Lag(account, stream, consumer)
	if err != nil {
		return lagFigures{}, err
	}
	return lagFigures{
		Source: "ehdb", Pending: l.Pending, AckPending: uint64(max(l.AckPending, 0)), //nolint:gosec // not negative
	}, nil
}

// lag implements lagSource.
func (u *upstreams) lag(ctx context.Context, account, stream, consumer string) (lagFigures, error) {
	j, err := u.pages.Jsz(ctx, &server.JSzOptions{Account: account, Streams: true, Consumer: true})
	if err != nil {
		return lagFigures{}, err
	}
	for _, a := range j.AccountDetails {
		if a.Name != account && a.Id != account {
			continue
		}
		for i := range a.Streams {
			for _, c := range a.Streams[i].Consumer {
				if a.Streams[i].Name == stream && c.Name == consumer {
					held := uint64(max(c.NumAckPending, 0)) //nolint:gosec // not negative
					return lagFigures{Source: "nats", Pending: c.NumPending, AckPending: held}, nil
				}
			}
		}
	}
	return lagFigures{}, fmt.Errorf("consumer %q of stream %q of account %q: %w", consumer, stream, account,
		jetstreamapi.ErrUnknown)
}

// noStreams is a server without JetStream.
type noStreams struct{}

func (noStreams) lag(context.Context, string, string, string) (lagFigures, error) {
	return lagFigures{}, fmt.Errorf("JetStream is off on this server: %w", jetstreamapi.ErrUnknown)
}
