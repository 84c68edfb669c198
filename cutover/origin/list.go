package origin

import (
	"context"
	"path"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Streams returns all streams of the account, as INFO without details shows them. Streams that the servers know of but
// cannot show now are an error: that they are missing must not look as if they were gone.
func (c *Conn) Streams(ctx context.Context) ([]*server.StreamInfo, error) {
	var out []*server.StreamInfo
	for {
		var resp server.JSApiStreamListResponse
		req := server.JSApiStreamListRequest{ApiPagedRequest: server.ApiPagedRequest{Offset: len(out)}}
		if err := c.ask(ctx, "STREAM.LIST", &req, &resp, &resp.ApiResponse); err != nil {
			return nil, c.fail("", "listing streams", err)
		}
		if len(resp.Missing) > 0 {
			return nil, c.fail("", "listing streams", &MissingError{Streams: resp.Missing})
		}
		out = append(out, resp.Streams...)
		if len(resp.Streams) == 0 || len(out) >= resp.Total {
			return out, nil
		}
	}
}

// MissingError says which streams the servers know of but cannot show now.
type MissingError struct{ Streams []string }

func (e *MissingError) Error() string {
	return "no answer from the leaders of some streams, the first being " + e.Streams[0]
}

// Watch calls fn with the account's streams now and then every so often until ctx ends. Failures go to fn, too.
func (c *Conn) Watch(ctx context.Context, every time.Duration, fn func([]*server.StreamInfo, error)) {
	for ctx.Err() == nil {
		list, err := c.Streams(ctx)
		if ctx.Err() != nil {
			return
		}
		fn(list, err)
		if pause(ctx, every) != nil {
			return
		}
	}
}

// Selects reports whether one of the patterns, in which * stands for any characters, fits the name of a stream. No
// pattern: all fit.
func Selects(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return len(patterns) == 0
}
