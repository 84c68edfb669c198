package reverse

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// A stream with interest retention removes what each consumer has done with, and what a consumer that takes no acks
// has been sent is done with. So upstream it would remove what was kept from clients, and with the consumer itself,
// which is made anew there in the end, all that it has not delivered. A keeper has the same filters and takes acks: it
// has done with what was delivered here.

// keeperPrefix begins the names of keepers.
const keeperPrefix = "ehdb-keeper-"

// keeper is the keeper of a consumer.
func keeper(c *cutover.ConsumerCopy) cutover.ConsumerCopy {
	at := c.State.Delivered
	at.Consumer = at.Stream // of no use
	return cutover.ConsumerCopy{
		Name: keeperPrefix + c.Name,
		Config: server.ConsumerConfig{
			Durable: keeperPrefix + c.Name, Name: keeperPrefix + c.Name,
			Description:   "keeps for a rollback what consumer " + c.Name + " has not delivered",
			DeliverPolicy: server.DeliverAll, AckPolicy: server.AckExplicit, AckWait: c.Config.AckWait,
			MaxAckPending: -1, MaxDeliver: -1,
			FilterSubject: c.Config.FilterSubject, FilterSubjects: c.Config.FilterSubjects,
			Replicas: c.Config.Replicas, MemoryStorage: c.Config.MemoryStorage,
		},
		State: server.ConsumerState{Delivered: at, AckFloor: at},
	}
}

// keeping puts keepers in the place of the consumers that take no acks, where they are needed. What the servers have of
// those themselves is left alone.
func (g *Ghosts) keeping(copies []cutover.ConsumerCopy, there map[string]*server.ConsumerInfo) {
	if g.from.Config().Retention != server.InterestPolicy {
		return
	}
	for i := range copies {
		if copies[i].Config.AckPolicy == server.AckNone {
			delete(there, copies[i].Name)
			copies[i] = keeper(&copies[i])
		}
	}
}

// Attend makes upstream the consumers that were made here since, before what was published behind that: a stream with
// interest retention keeps no message that no consumer waits for.
func (g *Ghosts) Attend(ctx context.Context) error {
	if g.from.Config().Retention != server.InterestPolicy {
		return nil
	}
	names, err := g.from.ConsumerNames()
	if err != nil || slices.Equal(names, *g.attended.Load()) {
		return err
	}
	release, err := g.inTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	copies, there, err := g.both(ctx)
	if err != nil {
		return err
	}
	for i := range copies {
		if there[copies[i].Name] != nil {
			continue
		}
		_, err := g.create(ctx, &copies[i], copies[i].State.AckFloor.Stream+1)
		var refused *apiError
		if err != nil && !errors.As(err, &refused) { // one that they refuse is tried again, and told of, by Sync
			return err
		}
	}
	g.attended.Store(&names)
	return nil
}

// unkeep deletes the keeper of a consumer that goes on upstream, if there is one.
func (g *Ghosts) unkeep(ctx context.Context, consumer string) error {
	if g.from.Config().Retention != server.InterestPolicy {
		return nil
	}
	return g.remove(ctx, keeperPrefix+consumer)
}

// Unkeep deletes all keepers.
func (g *Ghosts) Unkeep(ctx context.Context) error {
	infos, err := g.to.Consumers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range infos {
		if strings.HasPrefix(i.Name, keeperPrefix) {
			errs = append(errs, g.remove(ctx, i.Name))
		}
	}
	return errors.Join(errs...)
}

// remove deletes a consumer upstream: no error if there is none.
func (g *Ghosts) remove(ctx context.Context, name string) error {
	err := request(ctx, g.conn, "CONSUMER.DELETE."+g.stream+"."+name, "")
	var api *apiError
	if errors.As(err, &api) && api.code == codeNoConsumer {
		return nil
	}
	return err
}
