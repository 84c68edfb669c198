package reverse

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Differs returns the settings of a stream that are other ones upstream than here, by their names in JSON.
func Differs(here, there *server.StreamConfig) []string {
	a, b := *here, *there
	a.Metadata, b.Metadata = own(here.Metadata), own(there.Metadata)
	return differs(a, b)
}

// BringConfig gives the servers' stream the configuration of the one here, and returns what was different.
func BringConfig(
	ctx context.Context, conn *nats.Conn, here server.StreamConfig, to cutover.Upstream,
) ([]string, error) {
	info, err := to.Info(ctx)
	if err != nil {
		return nil, err
	}
	changed := Differs(&here, &info.Config)
	if len(changed) == 0 {
		return nil, nil
	}
	body, err := json.Marshal(here)
	if err != nil {
		return nil, err
	}
	return changed, request(ctx, conn, "STREAM.UPDATE."+here.Name, string(body))
}

// own is metadata without what a server says of itself.
func own(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata))
	for k, v := range metadata {
		if !strings.HasPrefix(k, "_nats.") {
			out[k] = v
		}
	}
	return out
}

// differs returns the fields of two values that are not equal as JSON.
func differs(a, b any) (names []string) {
	x, y := fields(a), fields(b)
	for name, v := range x {
		if !bytes.Equal(v, y[name]) {
			names = append(names, name)
		}
	}
	for name := range y {
		if _, both := x[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fields are empty of what is no configuration: it differs from all that are.
func fields(v any) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage)
	if doc, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(doc, &out) // it was marshaled
	}
	return out
}

// configure gives a consumer upstream the configuration want. Where it began cannot be changed, and need not be. What
// the servers have made of a configuration once they are not asked for again.
func (g *Ghosts) configure(
	ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo, want server.ConsumerConfig,
) error {
	if info.Config == nil {
		return nil
	}
	have := *info.Config
	want.DeliverPolicy, want.OptStartSeq, want.OptStartTime = have.DeliverPolicy, have.OptStartSeq, have.OptStartTime
	want.PauseUntil = have.PauseUntil
	x, y := want, have
	x.Metadata, y.Metadata = own(want.Metadata), own(have.Metadata)
	changed := differs(x, y)
	asked, err := json.Marshal([]any{x, y})
	if err != nil || len(changed) == 0 || string(asked) == g.asked[c.Name] {
		return err
	}
	if _, err := g.put(ctx, c.Name, &want); err != nil {
		return err
	}
	g.asked[c.Name] = string(asked)
	return nil
}

// pause makes a consumer upstream deliver, or not, as the one here does.
func (g *Ghosts) pause(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	if info.Config == nil {
		return nil
	}
	want, have := until(c.Config.PauseUntil), until(info.Config.PauseUntil)
	if want.Equal(have) {
		return nil
	}
	body, err := json.Marshal(server.JSApiConsumerPauseRequest{PauseUntil: want})
	if err != nil {
		return err
	}
	return request(ctx, g.conn, "CONSUMER.PAUSE."+g.stream+"."+c.Name, string(body))
}

// until is the end of a pause; zero if there is none any more.
func until(t *time.Time) time.Time {
	if t == nil || t.Before(time.Now()) {
		return time.Time{}
	}
	return *t
}
