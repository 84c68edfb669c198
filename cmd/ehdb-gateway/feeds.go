package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/visit"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/feed"
	"github.com/noetl/ehdb-gateway/internal/metrics"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
)

// feedPage serves feed.Path, or says why there are no feeds.
func (a *app) feedPage() http.Handler {
	own := a.cfg.EHDB.Feed
	switch {
	case own == nil:
		return noFeeds("feeds are off on this server: ehdb { feed {} } in its configuration turns them on")
	case a.nats == nil && a.streams == nil:
		return noFeeds("JetStream is off on this server, so there are no streams to have feeds of")
	}
	o := feed.Options{
		MaxConnections: own.MaxConnections, Heartbeat: own.Heartbeat, WriteDeadline: a.cfg.Server.WriteDeadline,
		Origins: own.Origins, Cookie: own.Cookie, LameDuck: a.gw.LameDuckBegan(), Logger: a.log.Logger,
	}
	if a.nats != nil { // the servers upstream decide about logins and have streams
		o.Visit = func(ctx context.Context, c *auth.Credentials) (feed.Visitor, error) {
			return visit.Enter(ctx, visit.Options{Dial: a.gw.Pipe, Logger: a.log.Logger}, c)
		}
	} else {
		o.Source, o.Auth = feedSource{a.streams}, a.gw.WebAuth
	}
	a.feeds = feed.New(o)
	return a.feeds
}

// noFeeds answers why there are no feeds.
func noFeeds(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, why, http.StatusNotImplemented)
	})
}

// feedPatience is how long a stop waits for feeds to say goodbye.
const feedPatience = 2 * time.Second

func (a *app) closeFeeds() {
	if a.feeds == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), feedPatience)
	defer cancel()
	a.feeds.Close(ctx)
}

func (a *app) feedCounts() metrics.SSE {
	s := a.feeds.Stats()
	return metrics.SSE{
		Connections: s.Connections, Opened: s.Opened, Resumed: s.Resumed, Slow: s.Slow, Events: s.Events,
		Bytes: s.Bytes, Gaps: s.Gaps, Refused: s.Refused,
	}
}

// feedSource has the streams for feeds.
type feedSource struct{ s *streams }

// Ready implements feed.Source.
func (f feedSource) Ready() error {
	if !f.s.up() {
		return errRecovering
	}
	return nil
}

// Subjects implements feed.Source.
func (f feedSource) Subjects(account, stream string) ([]string, error) {
	subjects, err := f.s.svc.StreamSubjects(account, stream)
	return subjects, feedError(err)
}

// deliverPolicies are the feed's policies as JetStream calls them.
var deliverPolicies = map[feed.Policy]server.DeliverPolicy{
	feed.DeliverAll: server.DeliverAll, feed.DeliverNew: server.DeliverNew, feed.DeliverLast: server.DeliverLast,
	feed.DeliverLastPerSubject:  server.DeliverLastPerSubject,
	feed.DeliverByStartSequence: server.DeliverByStartSequence, feed.DeliverByStartTime: server.DeliverByStartTime,
}

// Open implements feed.Source.
func (f feedSource) Open(account, stream string, from *feed.From) (feed.Reader, error) {
	r, err := f.s.svc.Read(account, stream, &server.ConsumerConfig{
		DeliverPolicy: deliverPolicies[from.Policy], OptStartSeq: from.Seq, OptStartTime: &from.Time,
		FilterSubjects: from.Filters,
	})
	if err != nil {
		return nil, feedError(err)
	}
	return feedReader{r}, nil
}

// feedError makes err one that feeds understand.
func feedError(err error) error {
	switch {
	case errors.Is(err, jetstreamapi.ErrUnknown):
		return asFeedError{err, feed.ErrUnknown}
	case errors.Is(err, jetstreamapi.ErrTooMany):
		return asFeedError{err, feed.ErrTooMany}
	}
	return err
}

// asFeedError is an error under another name.
type asFeedError struct {
	error
	as error
}

func (e asFeedError) Unwrap() error { return e.as }

// feedReader reads a stream for a feed.
type feedReader struct{ *jetstreamapi.Reader }

// Next implements feed.Reader.
func (r feedReader) Next() (feed.Step, error) {
	step, err := r.Reader.Next()
	if err != nil {
		return feed.Step{}, fmt.Errorf("the stream was deleted, or cannot be read now: %w", err)
	}
	out := feed.Step{Missing: step.Missing, Upto: step.Upto}
	if rec := step.Record; rec != nil {
		out.Message = &feed.Message{
			Seq: rec.Seq, Time: rec.TimeUTC(), Subject: rec.Key, Header: rec.Header, Data: rec.Data,
		}
	}
	return out, nil
}
