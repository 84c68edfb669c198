package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Ghosts take part in the consumers of the servers' stream in the clients' place: they take what clients have taken
// here, and acknowledge what clients have acknowledged here. What a client has and has not acknowledged, a ghost holds
// without an ack.
type Ghosts struct {
	conn   *nats.Conn
	from   cutover.Copy
	to     cutover.Upstream
	stream string
	log    *slog.Logger

	mu    sync.Mutex
	pushs map[string]*nats.Subscription // by consumer: of those that push
	held  map[string]map[uint64]string  // by consumer and sequence: where to acknowledge
}

// NewGhosts returns the ghosts of a stream's consumers.
func NewGhosts(conn *nats.Conn, from cutover.Copy, to cutover.Upstream, stream string, log *slog.Logger) *Ghosts {
	return &Ghosts{
		conn: conn, from: from, to: to, stream: stream, log: log,
		pushs: make(map[string]*nats.Subscription), held: make(map[string]map[uint64]string),
	}
}

// Close ends what pushes to the ghosts.
func (g *Ghosts) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.pushs {
		_ = s.Unsubscribe()
	}
	clear(g.pushs)
}

// Stray takes the reply subject of a message or a request of flow control that the servers sent to a client.
func (g *Ghosts) Stray(reply string) { g.take(reply) }

// GiveBack lets the servers deliver what they have given to a ghost and no client has got.
func (g *Ghosts) GiveBack() {
	copies, err := g.from.Consumers()
	if err != nil {
		return // they deliver it all the same, later
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range copies {
		for seq, reply := range g.held[copies[i].Name] {
			if seq > copies[i].State.Delivered.Stream {
				_ = g.conn.Publish(reply, []byte("-NAK"))
			}
		}
	}
}

// take notes a delivery, or answers flow control.
func (g *Ghosts) take(reply string) {
	if strings.HasPrefix(reply, "$JS.FC.") {
		_ = g.conn.Publish(reply, nil) // an answer that is lost is asked for again
		return
	}
	consumer, seq, ok := ackOf(reply)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.held[consumer]
	if m == nil {
		m = make(map[uint64]string)
		g.held[consumer] = m
	}
	m[seq] = reply
}

// ackOf reads consumer and stream sequence from the reply subject of a delivery.
func ackOf(reply string) (consumer string, seq uint64, ok bool) {
	const v1, v2 = 9, 11
	t := strings.Split(reply, ".")
	switch {
	case len(t) == v1:
		t = t[2:]
	case len(t) >= v2:
		t = t[4:]
	default:
		return "", 0, false
	}
	seq, err := strconv.ParseUint(t[3], 10, 64)
	return t[1], seq, err == nil
}

// Follow keeps the consumers upstream near those here until ctx ends.
func (g *Ghosts) Follow(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := g.Sync(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("Consumers of {stream} upstream could not be kept near those here: {error}",
				slog.String("stream", g.stream), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Sync brings every consumer upstream to where the one here is. What is published here has to be upstream already, as
// far as a consumer has delivered it.
func (g *Ghosts) Sync(ctx context.Context) error {
	copies, err := g.from.Consumers()
	if err != nil {
		return err
	}
	infos, err := g.to.Consumers(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]*server.ConsumerInfo, len(infos))
	for _, i := range infos {
		there[i.Name] = i
	}
	var errs []error
	for i := range copies {
		if err := g.one(ctx, &copies[i], there[copies[i].Name]); err != nil {
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

// one brings one consumer upstream to c. info is what the servers say of it, nil: they do not have it.
func (g *Ghosts) one(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	if c.Config.AckPolicy == server.AckNone {
		return nil // it is begun anew when the servers have the say again, see Dormant
	}
	if info == nil {
		if err := g.create(ctx, c, c.State.AckFloor.Stream+1); err != nil {
			return err
		}
		info = &server.ConsumerInfo{Name: c.Name}
	}
	if c.Config.DeliverSubject != "" {
		if err := g.listen(&c.Config, c.Name); err != nil {
			return err
		}
	}
	if err := g.catchUp(ctx, c, info); err != nil {
		return err
	}
	return g.acknowledge(c, info)
}

// create makes a consumer upstream that begins at a sequence.
func (g *Ghosts) create(ctx context.Context, c *cutover.ConsumerCopy, first uint64) error {
	cfg := c.Config
	if first > 1 {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = server.DeliverByStartSequence, first, nil
	}
	body, err := json.Marshal(server.CreateConsumerRequest{Stream: g.stream, Config: cfg})
	if err != nil {
		return err
	}
	return request(ctx, g.conn, "CONSUMER.CREATE."+g.stream+"."+c.Name, string(body))
}

// Dormant deletes upstream the consumers that take no acks, and returns them for Awaken. Where they are there depends
// on what was sent to clients and kept from them, and nothing brings it back.
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
		err := request(ctx, g.conn, "CONSUMER.DELETE."+g.stream+"."+copies[i].Name, "")
		var api *apiError
		if err != nil && (!errors.As(err, &api) || api.code != codeNoConsumer) {
			return nil, err
		}
		out = append(out, copies[i])
	}
	return out, nil
}

const codeNoConsumer = 10014

// Awaken makes consumers upstream that go on behind what was delivered here.
func (g *Ghosts) Awaken(ctx context.Context, list []cutover.ConsumerCopy) error {
	var errs []error
	for i := range list {
		errs = append(errs, g.create(ctx, &list[i], list[i].State.Delivered.Stream+1))
	}
	return errors.Join(errs...)
}

// listen hears what a consumer upstream pushes, beside or in the place of clients.
func (g *Ghosts) listen(cfg *server.ConsumerConfig, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pushs[name] != nil {
		return nil
	}
	sub, err := g.conn.QueueSubscribe(cfg.DeliverSubject, cfg.DeliverGroup, func(m *nats.Msg) {
		if m.Reply != "" {
			g.take(m.Reply)
		}
	})
	if err != nil {
		return err
	}
	g.pushs[name] = sub
	return nil
}

// catchUp takes what the consumer here has delivered and the one upstream has not, and nothing behind it.
func (g *Ghosts) catchUp(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	if info.Delivered.Stream >= c.State.Delivered.Stream || c.Config.DeliverSubject != "" {
		return nil
	}
	todo, err := g.undelivered(ctx, &c.Config, info.Delivered.Stream+1, c.State.Delivered.Stream)
	if err != nil || len(todo) == 0 {
		return err
	}
	inbox := nats.NewInbox()
	sub, err := g.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for len(todo) > 0 {
		const most = 256
		batch := min(len(todo), most)
		if err := g.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+g.stream+"."+c.Name, inbox,
			fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, pullTime)); err != nil {
			return err
		}
		n, err := g.taken(ctx, sub, c, todo, batch)
		if err != nil {
			return err
		}
		if n == 0 {
			return g.left(ctx, c, todo)
		}
	}
	return nil
}

// left reports on messages that a consumer upstream does not give: those that were removed meanwhile are none.
func (g *Ghosts) left(ctx context.Context, c *cutover.ConsumerCopy, todo map[uint64]bool) error {
	n := 0
	for seq := range todo {
		_, err := g.to.Get(ctx, seq)
		switch {
		case errors.Is(err, cutover.ErrNoRecord):
		case err != nil:
			return err
		default:
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d messages that were delivered here are not delivered upstream, up to %d",
			n, c.State.Delivered.Stream)
	}
	return nil
}

// undelivered returns the sequences from first to last of the servers' stream that a consumer selects.
func (g *Ghosts) undelivered(
	ctx context.Context, cfg *server.ConsumerConfig, first, last uint64,
) (map[uint64]bool, error) {
	filters := cfg.FilterSubjects
	if cfg.FilterSubject != "" {
		filters = []string{cfg.FilterSubject}
	}
	selects := func(subject []byte) bool {
		return len(filters) == 0 ||
			slices.ContainsFunc(filters, func(f string) bool { return subjects.Match(f, subject) })
	}
	out := make(map[uint64]bool)
	var failure error
	err := g.to.Read(ctx, first, func(r *cutover.Record, err error) bool {
		if err != nil {
			failure = err
			return false
		}
		if r.Seq > last {
			return false
		}
		if selects(r.Subject) {
			out[r.Seq] = true
		}
		return true
	})
	return out, errors.Join(failure, err)
}

// pullTime is how long a pull waits: what has just been stored reaches a consumer a moment later.
const pullTime = 100 * time.Millisecond

// taken receives one batch, takes it off todo and acknowledges what is done here.
func (g *Ghosts) taken(
	ctx context.Context, sub *nats.Subscription, c *cutover.ConsumerCopy, todo map[uint64]bool, batch int,
) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for n < batch {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return n, err
		}
		_, seq, ok := ackOf(m.Reply)
		if !ok {
			return n, nil // a status: there is no more
		}
		n++
		delete(todo, seq)
		_, pending := c.State.Pending[seq]
		answer := "+ACK"
		switch {
		case c.Config.AckPolicy == server.AckNone:
			continue
		case seq > c.State.Delivered.Stream: // not for a ghost
			answer = "-NAK"
		case pending:
			g.take(m.Reply)
			continue
		}
		if err := g.conn.Publish(m.Reply, []byte(answer)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// acknowledge acknowledges upstream what is done here and is outstanding there.
func (g *Ghosts) acknowledge(c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	if c.Config.AckPolicy == server.AckNone || c.Config.AckPolicy == server.AckAll && c.State.AckFloor.Stream == 0 {
		return nil
	}
	done := func(seq uint64) bool {
		_, pending := c.State.Pending[seq]
		return seq <= c.State.AckFloor.Stream || seq <= c.State.Delivered.Stream && !pending
	}
	g.mu.Lock()
	var replies []string
	for seq, reply := range g.held[c.Name] {
		if done(seq) {
			replies = append(replies, reply)
			delete(g.held[c.Name], seq)
		}
	}
	g.mu.Unlock()
	// What clients took from the servers before the flip: any ack subject with its sequences will do.
	for seq := info.AckFloor.Stream + 1; info.NumAckPending > 0 && seq <= info.Delivered.Stream; seq++ {
		if done(seq) {
			replies = append(replies, fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0",
				g.stream, c.Name, seq, seq, time.Now().UnixNano()))
		}
	}
	for _, reply := range replies {
		if err := g.conn.Publish(reply, []byte("+ACK")); err != nil {
			return err
		}
	}
	return g.conn.FlushTimeout(answerTime)
}
