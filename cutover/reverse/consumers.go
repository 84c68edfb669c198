package reverse

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// create makes a consumer upstream that gives at least what is to come from a sequence on.
func (g *Ghosts) create(ctx context.Context, c *cutover.ConsumerCopy, first uint64) (*server.ConsumerInfo, error) {
	cfg := c.Config
	// A ghost takes what comes before that. But a consumer without acks cannot be brought anywhere, and one that was
	// to begin at the end of the stream would begin behind what has come since.
	takes := cfg.AckPolicy != server.AckNone
	same := takes && (cfg.DeliverPolicy == server.DeliverAll || cfg.DeliverPolicy == server.DeliverByStartSequence ||
		cfg.DeliverPolicy == server.DeliverByStartTime)
	if first > 1 && !same {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = server.DeliverByStartSequence, first, nil
	}
	return g.put(ctx, c.Name, &cfg)
}

// put makes a consumer, or gives it another configuration.
func (g *Ghosts) put(ctx context.Context, name string, cfg *server.ConsumerConfig) (*server.ConsumerInfo, error) {
	body, err := json.Marshal(server.CreateConsumerRequest{Stream: g.stream, Config: *cfg})
	if err != nil {
		return nil, err
	}
	info := new(server.ConsumerInfo)
	return info, ask(ctx, g.conn, "CONSUMER.CREATE."+g.stream+"."+name, body, info)
}

// info asks the servers about a consumer.
func (g *Ghosts) info(ctx context.Context, name string) (*server.ConsumerInfo, error) {
	info := new(server.ConsumerInfo)
	return info, ask(ctx, g.conn, "CONSUMER.INFO."+g.stream+"."+name, nil, info)
}

// Dormant makes upstream anew, behind what was delivered here, the consumers that take no acks: where they are there
// depends on what was sent to clients and kept from them, and nothing brings it back. Those that push it deletes, and
// returns them for Awaken: they would push at once.
func (g *Ghosts) Dormant(ctx context.Context) ([]cutover.ConsumerCopy, error) {
	copies, err := g.from.Consumers()
	if err != nil {
		return nil, err
	}
	var out []cutover.ConsumerCopy
	for i := range copies {
		if copies[i].Config.AckPolicy != server.AckNone {
			continue
		}
		if err := g.remove(ctx, copies[i].Name); err != nil {
			return nil, err
		}
		if copies[i].Config.DeliverSubject != "" {
			out = append(out, copies[i])
			continue
		}
		if err := g.Awaken(ctx, copies[i:i+1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Awaken makes consumers upstream that go on behind what was delivered here.
func (g *Ghosts) Awaken(ctx context.Context, list []cutover.ConsumerCopy) error {
	var errs []error
	for i := range list {
		_, err := g.create(ctx, &list[i], list[i].State.Delivered.Stream+1)
		if err == nil {
			err = g.unkeep(ctx, list[i].Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
