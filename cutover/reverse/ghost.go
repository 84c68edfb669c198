package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Ghosts take part in the consumers of the servers' stream in the clients' place: they take what clients have taken
// here, and acknowledge what clients have acknowledged here. What a client has and has not acknowledged, a ghost holds
// without an ack; so it does with what the servers have delivered and no client has got here.
//
// What to take and to acknowledge is worked out of what both sides say, each time. So a restart forgets nothing, and to
// do it again does no harm.
type Ghosts struct {
	conn   *nats.Conn
	from   cutover.Copy
	to     cutover.Upstream
	stream string
	log    *slog.Logger
	turn   chan struct{}     // held by Sync: two would take from each other what each waits for
	asked  map[string]string // what was asked of a consumer's configuration last; the turn's

	attended atomic.Pointer[[]string] // the consumers here that are upstream, too; see Attend

	mu    sync.Mutex
	pushs map[string]*nats.Subscription // by consumer: of those that push
}

// NewGhosts returns the ghosts of a stream's consumers.
func NewGhosts(conn *nats.Conn, from cutover.Copy, to cutover.Upstream, stream string, log *slog.Logger) *Ghosts {
	g := &Ghosts{
		conn: conn, from: from, to: to, stream: stream, log: log,
		turn: make(chan struct{}, 1), asked: make(map[string]string), pushs: make(map[string]*nats.Subscription),
	}
	g.attended.Store(new([]string))
	return g
}

// Close ends what pushes to the ghosts.
func (g *Ghosts) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.pushs {
		_ = s.Unsubscribe()
	}
	if len(g.pushs) > 0 {
		_ = g.conn.FlushTimeout(answerTime) // a connection that is lost has no subscriptions either
	}
	clear(g.pushs)
}

// Stray takes the reply subject of a message or a request of flow control that the servers sent to a client, who does
// not get it.
func (g *Ghosts) Stray(reply string) {
	if strings.HasPrefix(reply, "$JS.FC.") {
		_ = g.conn.Publish(reply, nil) // an answer that is lost is asked for again
	}
}

// Sync brings every consumer upstream to where the one here is, with the configuration that it has here. What is
// published here has to be upstream already, as far as a consumer has delivered it. When it returns, the servers have
// done with all acks.
func (g *Ghosts) Sync(ctx context.Context) error { return g.sync(ctx, false) }

// Settle is Sync where both sides stand still. It does not save acks for what the servers' counts say they have: counts
// may be equal by chance.
func (g *Ghosts) Settle(ctx context.Context) error { return g.sync(ctx, true) }

// inTurn waits for the turn to change consumers upstream, which lasts until release.
func (g *Ghosts) inTurn(ctx context.Context) (release func(), err error) {
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (g *Ghosts) sync(ctx context.Context, all bool) error {
	release, err := g.inTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	copies, there, err := g.both(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range copies {
		if err := g.one(ctx, &copies[i], there[copies[i].Name], all); err != nil {
			errs = append(errs, fmt.Errorf("consumer %s: %w", copies[i].Name, err))
		}
		delete(there, copies[i].Name)
	}
	for name := range there { // deleted here
		if err := request(ctx, g.conn, "CONSUMER.DELETE."+g.stream+"."+name, ""); err != nil {
			errs = append(errs, fmt.Errorf("consumer %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// both returns the consumers here, and those of the servers by name; of some their keepers.
func (g *Ghosts) both(ctx context.Context) ([]cutover.ConsumerCopy, map[string]*server.ConsumerInfo, error) {
	copies, err := g.from.Consumers()
	if err != nil {
		return nil, nil, err
	}
	infos, err := g.to.Consumers(ctx)
	if err != nil {
		return nil, nil, err
	}
	there := make(map[string]*server.ConsumerInfo, len(infos))
	for _, i := range infos {
		there[i.Name] = i
	}
	g.keeping(copies, there)
	return copies, there, nil
}

// one brings one consumer upstream to c. info is what the servers say of it, nil: they do not have it.
//
//nolint:revive // all is sync's
func (g *Ghosts) one(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo, all bool) (err error) {
	if c.Config.AckPolicy == server.AckNone {
		return nil // it is begun anew when the servers have the say again, see Dormant
	}
	if info == nil {
		if info, err = g.create(ctx, c, c.State.AckFloor.Stream+1); err != nil {
			return err
		}
	}
	if c.Config.DeliverSubject != "" {
		if err := g.listen(&c.Config, c.Name); err != nil {
			return err
		}
	}
	if !all {
		if err := g.configure(ctx, c, info, liftConsumer(c.Config)); err != nil {
			return err
		}
	}
	if info, err = g.rouse(ctx, c, info); err != nil {
		return err
	}
	took, err := g.catchUp(ctx, c, info)
	if err == nil && took {
		info, err = g.info(ctx, c.Name)
	}
	if err == nil {
		err = g.acknowledge(ctx, c, info, all)
	}
	if err == nil && all { // with the limits that it has here again, it would not get there
		err = errors.Join(g.configure(ctx, c, info, c.Config), g.unpin(ctx, c, info))
	}
	if err != nil {
		return err
	}
	return g.pause(ctx, c, info)
}

// listen hears what a consumer upstream pushes, beside or in the place of clients.
func (g *Ghosts) listen(cfg *server.ConsumerConfig, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pushs[name] != nil {
		return nil
	}
	sub, err := g.conn.QueueSubscribe(cfg.DeliverSubject, cfg.DeliverGroup, func(m *nats.Msg) { g.Stray(m.Reply) })
	if err != nil {
		return err
	}
	g.pushs[name] = sub
	return nil
}

// catchUp takes what the consumer here has delivered and the one upstream has not, and reports whether there was any.
func (g *Ghosts) catchUp(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) (bool, error) {
	if info.Delivered.Stream >= c.State.Delivered.Stream || c.Config.DeliverSubject != "" {
		return false, nil
	}
	todo, err := g.undelivered(ctx, c, info)
	if err != nil || len(todo) == 0 {
		return false, err
	}
	// Acknowledged first: at max_ack_pending the servers give no more.
	if err := g.acknowledge(ctx, c, info, false); err != nil {
		return false, err
	}
	if err := g.unpin(ctx, c, info); err != nil {
		return false, err
	}
	return true, g.takeAll(ctx, c, todo)
}

// unpin ends upstream that one client, or a ghost, has a consumer to itself.
func (g *Ghosts) unpin(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	var errs []error
	for _, p := range info.PriorityGroups {
		if p.PinnedClientID == "" {
			continue
		}
		body, err := json.Marshal(server.JSApiConsumerUnpinRequest{Group: p.Group})
		errs = append(errs, err, request(ctx, g.conn, "CONSUMER.UNPIN."+g.stream+"."+c.Name, string(body)))
	}
	return errors.Join(errs...)
}

// pullBody is a request for messages.
func pullBody(cfg *server.ConsumerConfig, batch int) []byte {
	group := ""
	if cfg.PriorityPolicy != server.PriorityNone && len(cfg.PriorityGroups) > 0 {
		group = fmt.Sprintf(`,"group":%q`, cfg.PriorityGroups[0])
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d%s}`, batch, pullTime, group)
}

// rouse ends the pause of a consumer upstream that is to deliver what was delivered here.
func (g *Ghosts) rouse(
	ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo,
) (*server.ConsumerInfo, error) {
	if !info.Paused || info.Delivered.Stream >= c.State.Delivered.Stream {
		return info, nil
	}
	if err := request(ctx, g.conn, "CONSUMER.PAUSE."+g.stream+"."+c.Name, "{}"); err != nil {
		return nil, err
	}
	return g.info(ctx, c.Name)
}

// takeAll pulls until all of todo has come.
func (g *Ghosts) takeAll(ctx context.Context, c *cutover.ConsumerCopy, todo map[uint64]bool) error {
	inbox := nats.NewInbox()
	sub, err := g.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for empty := 0; len(todo) > 0; {
		const most = 256
		batch := min(len(todo), most)
		if err := g.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+g.stream+"."+c.Name, inbox,
			pullBody(&c.Config, batch)); err != nil {
			return err
		}
		before := len(todo)
		if err := g.take(ctx, sub, c, todo, batch); err != nil {
			return err
		}
		if len(todo) < before {
			empty = 0
			continue
		}
		info, err := g.info(ctx, c.Name) // nothing, or the same again
		if err == nil {
			err = g.unpin(ctx, c, info)
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(todo, func(seq uint64, _ bool) bool { return seq <= info.Delivered.Stream }) // to a client
		if err := undeliverable(ctx, g.to, c, todo); err == nil || empty >= maxEmptyPull {
			return err
		}
		empty++ // at max_ack_pending, acks that are not taken yet stand in the way
		if err := g.acknowledge(ctx, c, info, true); err != nil {
			return err
		}
	}
	return nil
}

// undeliverable is an error if any of the messages in todo, which c has delivered here and a consumer upstream does not
// give, are still on the servers. Those that were removed meanwhile are not.
func undeliverable(ctx context.Context, to cutover.Reader, c *cutover.ConsumerCopy, todo map[uint64]bool) error {
	if len(todo) == 0 {
		return nil
	}
	seqs := slices.Sorted(maps.Keys(todo))
	n := 0
	err := cutover.ReadTo(ctx, to, seqs[0], seqs[len(seqs)-1], func(r *cutover.Record, err error) bool {
		if r != nil && todo[r.Seq] || err != nil {
			n++
		}
		return true
	})
	if err == nil && n > 0 {
		err = fmt.Errorf("%d messages that were delivered here are not delivered upstream, up to %d",
			n, c.State.Delivered.Stream)
	}
	return err
}

// undelivered returns the sequences of the servers' stream that the consumer here has delivered and that upstream has
// not.
func (g *Ghosts) undelivered(
	ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo,
) (map[uint64]bool, error) {
	st, err := g.to.State(ctx, false)
	if err != nil {
		return nil, err
	}
	var from cutover.Reader = g.from // the same, and nearer
	if g.from.Config().Retention != server.LimitsPolicy {
		from = g.to // where there is also what was acknowledged, and so removed, here
	}
	last := min(c.State.Delivered.Stream, st.LastSeq) // what the chain has not published yet is taken later
	return selected(ctx, from, &c.Config, info.Delivered.Stream+1, last)
}

// selected returns the sequences from first to last that a consumer selects.
func selected(
	ctx context.Context, from cutover.Reader, cfg *server.ConsumerConfig, first, last uint64,
) (map[uint64]bool, error) {
	out := make(map[uint64]bool)
	if first > last {
		return out, nil
	}
	filters := cutover.Filters(cfg)
	var failure error
	err := cutover.ReadTo(ctx, from, first, last, func(r *cutover.Record, err error) bool {
		if err != nil {
			failure = err
			return false
		}
		if len(filters) == 0 ||
			slices.ContainsFunc(filters, func(f string) bool { return subjects.Match(f, r.Subject) }) {
			out[r.Seq] = true
		}
		return true
	})
	return out, errors.Join(failure, err)
}

// pullTime is how long a pull waits: what has just been stored reaches a consumer a moment later.
const pullTime = 100 * time.Millisecond

// take receives one batch, takes it off todo, and acknowledges what is done here. What is not, and what clients here
// have not got yet, it holds: refused, it would come again at once.
func (g *Ghosts) take(
	ctx context.Context, sub *nats.Subscription, c *cutover.ConsumerCopy, todo map[uint64]bool, batch int,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for range batch {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		seq, ok := sequenceOf(m.Reply)
		if !ok {
			return nil // a status: there is no more
		}
		delete(todo, seq)
		if done(c, seq) {
			if err := g.conn.Publish(m.Reply, []byte("+ACK")); err != nil {
				return err
			}
		}
	}
	return nil
}
