package main

import (
	"context"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// moving shows streams of which some are served by the NATS servers and some from here, each from where it is served:
// who reads the pages need not know.
type moving struct {
	*upstreams
	own *streams
	m   *mover
}

// Known implements monitor.JetStream.
func (v moving) Known() error {
	if err := v.own.Known(); err != nil {
		return err
	}
	return v.upstreams.Known()
}

// Jsz implements monitor.JetStream.
func (v moving) Jsz(o *server.JSzOptions) (*server.JSInfo, error) {
	j, err := v.upstreams.Jsz(o)
	if err != nil {
		return nil, err
	}
	own, err := v.own.Jsz(o)
	if err != nil {
		return nil, err
	}
	j.AccountDetails = slices.Clone(j.AccountDetails)
	for i, a := range j.AccountDetails {
		d := *a
		d.Streams = slices.Clone(d.Streams)
		for k := range d.Streams {
			if here := detail(own, d.Name, d.Streams[k].Name); here != nil && v.m.here(d.Name, d.Streams[k].Name) {
				d.Streams[k] = *here
			}
		}
		j.AccountDetails[i] = &d
	}
	return j, nil
}

// detail is what j says about a stream, nil if nothing.
func detail(j *server.JSInfo, account, stream string) *server.StreamDetail {
	for _, a := range j.AccountDetails {
		if a.Name != account {
			continue
		}
		for i := range a.Streams {
			if a.Streams[i].Name == stream {
				return &a.Streams[i]
			}
		}
	}
	return nil
}

// lags implements lagSource.
func (v moving) lags(ctx context.Context, q lagQuery) ([]lagFigures, string, error) {
	if q.stream != "" {
		if v.m.here(q.account, q.stream) {
			return v.own.lags(ctx, q)
		}
		return v.upstreams.lags(ctx, q)
	}
	there, source, err := v.upstreams.lags(ctx, q)
	if err != nil {
		return nil, "", err
	}
	here, _, err := v.own.lags(ctx, q)
	if err != nil {
		return nil, "", err
	}
	there = slices.DeleteFunc(there, func(f lagFigures) bool { return v.m.here(f.Account, f.Stream) })
	here = slices.DeleteFunc(here, func(f lagFigures) bool { return !v.m.here(f.Account, f.Stream) })
	if len(here) > 0 {
		source = "nats and ehdb"
	}
	return append(there, here...), source, nil
}
