package origin

import (
	"context"
	"encoding/json"
	"path"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
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

// Names returns the account's streams that store a subject, sorted; empty: all of them.
func (c *Conn) Names(ctx context.Context, subject string) ([]string, error) {
	var out []string
	for {
		var resp server.JSApiStreamNamesResponse
		req := server.JSApiStreamNamesRequest{
			ApiPagedRequest: server.ApiPagedRequest{Offset: len(out)}, Subject: subject,
		}
		if err := c.ask(ctx, "STREAM.NAMES", &req, &resp, &resp.ApiResponse); err != nil {
			return nil, c.fail("", "naming streams", err)
		}
		out = append(out, resp.Streams...)
		if len(resp.Streams) == 0 || len(out) >= resp.Total {
			return out, nil
		}
	}
}

// Infos returns n of these streams from an offset on, as they are listed.
func (c *Conn) Infos(ctx context.Context, subject string, offset, n int) (*cutover.Infos, error) {
	out := &cutover.Infos{}
	for end := offset + n; offset < end; {
		var resp struct {
			server.ApiResponse
			server.ApiPaged
			Streams []json.RawMessage `json:"streams"`
			Missing []string          `json:"missing"`
			Offline map[string]string `json:"offline"`
		}
		req := server.JSApiStreamListRequest{ApiPagedRequest: server.ApiPagedRequest{Offset: offset}, Subject: subject}
		if err := c.ask(ctx, "STREAM.LIST", &req, &resp, &resp.ApiResponse); err != nil {
			return nil, c.fail("", "listing streams", err)
		}
		out.Streams = append(out.Streams, resp.Streams...)
		out.Missing = resp.Missing // each page has all of them
		out.Offline = resp.Offline
		if offset += len(resp.Streams); len(resp.Streams) == 0 || offset >= resp.Total {
			break
		}
	}
	return out, nil
}

// Usage returns what INFO says of the account.
func (c *Conn) Usage(ctx context.Context) (*server.JetStreamAccountStats, error) {
	var resp server.JSApiAccountInfoResponse
	if err := c.ask(ctx, "INFO", nil, &resp, &resp.ApiResponse); err != nil {
		return nil, c.fail("", "asking for what the account uses", err)
	}
	return resp.JetStreamAccountStats, nil
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
