package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Single takes part in one consumer of the servers, which pulls and takes explicit acks, in the clients' place, while
// the servers have the say about the stream and clients are served from the copy: a ghost that follows at once. One
// goroutine uses it at a time.
type Single struct {
	conn     *nats.Conn
	from     cutover.Copy
	to       cutover.Upstream
	stream   string
	consumer string
	taken    func(seq uint64) // told of each message that the servers have given to it
}

// NewSingle returns the ghost of one consumer. taken may be nil.
func NewSingle(
	conn *nats.Conn, from cutover.Copy, to cutover.Upstream, stream, consumer string, taken func(seq uint64),
) *Single {
	if taken == nil {
		taken = func(uint64) {}
	}
	return &Single{conn, from, to, stream, consumer, taken}
}

// Stray takes the reply subject of a message that the servers sent to a client, who does not get it from them.
func (g *Single) Stray(reply string) {
	if seq, ok := sequenceOf(reply); ok {
		g.taken(seq)
	}
}

// Bounds of a round.
const (
	bringTime    = 2 * time.Second // that the servers may take to count what they were told
	countEvery   = 5 * time.Millisecond
	singlePull   = 100 * time.Millisecond // what has just been stored reaches a consumer a moment later
	pullSilence  = 3 * singlePull         // that a pull which has ended may go unanswered
	singleBatch  = 256
	maxEmptyPull = 5
)

// Bring brings the consumer upstream to where the one here is, and returns once the servers say so: they have delivered
// what was delivered here, and nothing is outstanding there but what is outstanding here and what they have given out
// beyond that. Error: cutover.ErrNoConsumer.
func (g *Single) Bring(ctx context.Context, c *cutover.ConsumerCopy) (*server.ConsumerInfo, error) {
	info, err := g.Info(ctx)
	if err != nil {
		return nil, err
	}
	// Acknowledged first: at max_ack_pending the servers give no more.
	if err := g.acknowledge(c, info); err != nil {
		return nil, err
	}
	if err := g.catchUp(ctx, c, info); err != nil {
		return nil, err
	}
	for end := time.Now().Add(bringTime); ; {
		if info, err = g.Info(ctx); err != nil {
			return nil, err
		}
		most := outstanding(c, info) + beyond(c, info)
		if info.NumAckPending <= most {
			return info, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the servers count %d messages as outstanding, and at most %d are: "+
				"somebody takes messages around the gateway, or acks do not arrive", info.NumAckPending, most)
		}
		if err := g.acknowledge(c, info); err != nil { // one may have been too early, or is lost
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(countEvery):
		}
	}
}

// beyond is at most how many messages the servers have given out that were not delivered here: to pull requests from
// before, or before the gateway was killed.
func beyond(c *cutover.ConsumerCopy, info *server.ConsumerInfo) int {
	if info.Delivered.Stream <= c.State.Delivered.Stream {
		return 0
	}
	return int(info.Delivered.Stream - c.State.Delivered.Stream) //nolint:gosec // a number of messages
}

// acknowledge acknowledges upstream what is done here and is outstanding there.
func (g *Single) acknowledge(c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	for seq := info.AckFloor.Stream + 1; info.NumAckPending > 0 && seq <= info.Delivered.Stream; seq++ {
		if !done(c, seq) {
			continue
		}
		if err := g.conn.Publish(g.ack(seq), []byte("+ACK")); err != nil {
			return err
		}
	}
	return g.conn.FlushTimeout(answerTime)
}

// ack is an ack subject that names a message: the servers look at its sequence alone.
func (g *Single) ack(seq uint64) string { return g.ackOf(seq, 1) }

// ackOf is ack for a NAK: that has to name a consumer sequence between the servers' ack floor and last delivery, too.
func (g *Single) ackOf(seq, consumerSeq uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", g.stream, g.consumer, seq, consumerSeq, time.Now().UnixNano())
}

// catchUp takes what the consumer here has delivered and the one upstream has not.
func (g *Single) catchUp(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	todo, err := selected(ctx, g.from, &c.Config, info.Delivered.Stream+1, c.State.Delivered.Stream)
	if err != nil || len(todo) == 0 {
		return err
	}
	inbox := nats.NewInbox()
	sub, err := g.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for empty := 0; len(todo) > 0; {
		batch := min(len(todo), singleBatch)
		if err := g.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+g.stream+"."+c.Name, inbox,
			fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, singlePull)); err != nil {
			return err
		}
		before := len(todo)
		if err := g.receive(ctx, sub, c, todo, batch); err != nil {
			return err
		}
		if len(todo) < before {
			empty = 0
			continue
		}
		if info, err = g.Info(ctx); err != nil { // meanwhile they may have gone to pulls of clients
			return err
		}
		maps.DeleteFunc(todo, func(seq uint64, _ bool) bool { return seq <= info.Delivered.Stream })
		if err := undeliverable(ctx, g.to, c, todo); err == nil || empty >= maxEmptyPull {
			return err
		}
		empty++ // at max_ack_pending, acks that are not taken yet stand in the way
		if err := g.acknowledge(c, info); err != nil {
			return err
		}
	}
	return nil
}

// receive receives one batch, takes it off todo and acknowledges what is done here.
func (g *Single) receive(
	ctx context.Context, sub *nats.Subscription, c *cutover.ConsumerCopy, todo map[uint64]bool, batch int,
) error {
	for range batch {
		limited, cancel := context.WithTimeout(ctx, pullSilence)
		m, err := sub.NextMsgWithContext(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			return nil // the request is over, and nobody said so
		case err != nil:
			return err
		}
		seq, ok := sequenceOf(m.Reply)
		if !ok {
			return nil // a status: there is no more
		}
		delete(todo, seq)
		g.taken(seq)
		if done(c, seq) {
			if err := g.conn.Publish(m.Reply, []byte("+ACK")); err != nil {
				return err
			}
		}
	}
	return nil
}

// Missed reports whether somebody else has taken messages of the consumer on the servers: less is outstanding there
// than was left so, and than they have given out beyond what was delivered here. info is what Bring returned.
func (g *Single) Missed(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) (bool, error) {
	ahead, err := g.ahead(ctx, c, info)
	return info.NumAckPending < outstanding(c, info)+ahead, err
}

// ahead is how many messages that the consumer selects the servers have given out, and were not delivered here.
func (g *Single) ahead(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) (int, error) {
	if beyond(c, info) == 0 {
		return 0, nil
	}
	if err := g.from.Durable(ctx, info.Delivered.Stream); err != nil { // the copy follows
		return 0, err
	}
	list, err := selected(ctx, g.from, &c.Config, c.State.Delivered.Stream+1, info.Delivered.Stream)
	return len(list), err
}

// Return makes the servers deliver again, at once, what they have given out and was not delivered here. info is what
// Bring returned, and kept what was given out since.
func (g *Single) Return(
	ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo, kept []uint64,
) error {
	list, err := selected(ctx, g.from, &c.Config, c.State.Delivered.Stream+1, info.Delivered.Stream)
	if list == nil {
		list = make(map[uint64]bool)
	}
	for _, seq := range kept {
		if seq > c.State.Delivered.Stream {
			list[seq] = true
		}
	}
	if len(list) == 0 {
		return err
	}
	for seq := range list {
		if err := g.conn.Publish(g.ackOf(seq, info.Delivered.Consumer), []byte("-NAK")); err != nil {
			return err
		}
	}
	return errors.Join(err, g.conn.FlushTimeout(answerTime))
}

// Confirm waits until the servers have confirmed acks of messages that they have delivered.
func (g *Single) Confirm(ctx context.Context, seqs []uint64) error {
	ctx, cancel := context.WithTimeout(ctx, bringTime)
	defer cancel()
	inbox := nats.NewInbox()
	sub, err := g.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, seq := range seqs {
		if err := g.conn.PublishRequest(g.ack(seq), inbox, []byte("+ACK")); err != nil {
			return err
		}
	}
	for range seqs {
		if _, err := sub.NextMsgWithContext(ctx); err != nil {
			return fmt.Errorf("the servers did not confirm an ack: %w", err)
		}
	}
	return nil
}

// Working starts the servers' ack wait of what is outstanding here anew: only the one here counts.
func (g *Single) Working(c *cutover.ConsumerCopy) error {
	for seq := range c.State.Pending {
		if err := g.conn.Publish(g.ack(seq), []byte("+WPI")); err != nil {
			return err
		}
	}
	return nil
}

// Info is what the servers say of the consumer: cutover.ErrNoConsumer if they have none of that name.
func (g *Single) Info(ctx context.Context) (*server.ConsumerInfo, error) {
	var info server.ConsumerInfo
	err := ask(ctx, g.conn, "CONSUMER.INFO."+g.stream+"."+g.consumer, nil, &info)
	var api *apiError
	if errors.As(err, &api) && api.code == codeNoConsumer {
		return nil, fmt.Errorf("%w: %w", cutover.ErrNoConsumer, err)
	}
	return &info, err
}

// Pause stops what the servers deliver for the consumer until a time, or lets it go on if that is zero. Servers before
// 2.11 cannot.
func (g *Single) Pause(ctx context.Context, until time.Time) error {
	body := []byte("{}")
	if !until.IsZero() {
		var err error
		if body, err = json.Marshal(server.JSApiConsumerPauseRequest{PauseUntil: until.UTC()}); err != nil {
			return err
		}
	}
	var answer server.JSApiConsumerPauseResponse
	if err := ask(ctx, g.conn, "CONSUMER.PAUSE."+g.stream+"."+g.consumer, body, &answer); err != nil {
		return err
	}
	if answer.Paused == until.IsZero() {
		return fmt.Errorf("the servers do not pause consumer %s: that needs nats-server 2.11", g.consumer)
	}
	return nil
}
