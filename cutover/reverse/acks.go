package reverse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// sequenceOf reads the stream sequence from the reply subject of a delivery.
func sequenceOf(reply string) (seq uint64, ok bool) {
	const v1, v2, at = 9, 11, 5
	t := strings.Split(reply, ".")
	switch {
	case t[0] != "$JS":
		return 0, false
	case len(t) >= v2: // with domain and account
		t = t[2:]
	case len(t) != v1:
		return 0, false
	}
	seq, err := strconv.ParseUint(t[at], 10, 64)
	return seq, err == nil
}

// ackSubject is where a message is acknowledged, whoever took it: the servers look for the stream's sequence alone
// where messages are acknowledged one by one, and a NAK, or an ack of all, must name a consumer sequence in bounds.
func (g *Ghosts) ackSubject(consumer string, seq, consumerSeq uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", g.stream, consumer, seq, consumerSeq, time.Now().UnixNano())
}

// done reports whether a message is done with here.
func done(c *cutover.ConsumerCopy, seq uint64) bool {
	if seq <= c.State.AckFloor.Stream {
		return true
	}
	_, pending := c.State.Pending[seq]
	_, exhausted := c.State.Redelivered[seq] // delivered as often as it may be: nobody has acknowledged it
	return seq <= c.State.Delivered.Stream && !pending && !exhausted
}

// outstanding is how many messages are outstanding here of those that the consumer upstream has delivered.
func outstanding(c *cutover.ConsumerCopy, info *server.ConsumerInfo) (n int) {
	for seq := range c.State.Pending {
		if seq <= info.Delivered.Stream {
			n++
		}
	}
	for seq := range c.State.Redelivered {
		if c.State.Pending[seq] == nil && seq <= info.Delivered.Stream && seq > c.State.AckFloor.Stream {
			n++
		}
	}
	return n
}

// acknowledge acknowledges upstream what is done here and may be outstanding there, and returns when the servers have
// done with all acks that were sent before, too. info is what they had delivered.
//
//nolint:revive // all is sync's
func (g *Ghosts) acknowledge(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo, all bool) error {
	if !all && info.NumAckPending <= outstanding(c, info) {
		return nil
	}
	last := min(info.Delivered.Stream, c.State.Delivered.Stream)
	if c.Config.AckPolicy == server.AckAll {
		if last = min(last, c.State.AckFloor.Stream); last <= info.AckFloor.Stream {
			return nil
		}
		// The lowest consumer sequence that counts: with one that is too high, acks to come would not.
		return g.confirm(ctx, g.ackSubject(c.Name, last, info.AckFloor.Consumer+1))
	}
	subject := "" // of the last ack
	for seq := info.AckFloor.Stream + 1; seq <= last; seq++ {
		if !done(c, seq) {
			continue
		}
		if subject != "" {
			if err := g.conn.Publish(subject, ackWord); err != nil {
				return err
			}
		}
		subject = g.ackSubject(c.Name, seq, 0)
	}
	if subject == "" {
		return nil
	}
	return g.confirm(ctx, subject)
}

var ackWord = []byte("+ACK")

// confirm acknowledges and waits for the answer: a consumer does with acks in their order.
func (g *Ghosts) confirm(ctx context.Context, subject string) error {
	return g.say(ctx, subject, ackWord)
}

func (g *Ghosts) say(ctx context.Context, subject string, word []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := g.conn.RequestWithContext(ctx, subject, word); err != nil {
		return fmt.Errorf("%s was not confirmed: %w", word, err)
	}
	return nil
}

// Compare returns what would come again if the servers had the say now: nil if nothing would. Both sides have to stand
// still.
func (g *Ghosts) Compare(ctx context.Context) error {
	copies, there, err := g.both(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range copies {
		c := &copies[i]
		if c.Config.AckPolicy == server.AckNone {
			continue
		}
		if err := g.compare(ctx, c, there[c.Name]); err != nil {
			errs = append(errs, fmt.Errorf("consumer %s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (g *Ghosts) compare(ctx context.Context, c *cutover.ConsumerCopy, info *server.ConsumerInfo) error {
	if info == nil {
		return errors.New("the servers do not have it")
	}
	behind, err := selected(ctx, g.from, &c.Config, info.Delivered.Stream+1, c.State.Delivered.Stream)
	if err != nil {
		return err
	}
	if len(behind) > 0 {
		return fmt.Errorf("%d messages were delivered here and not upstream, up to %d",
			len(behind), c.State.Delivered.Stream)
	}
	ahead, err := selected(ctx, g.from, &c.Config, c.State.Delivered.Stream+1, info.Delivered.Stream)
	if err != nil {
		return err
	}
	if most := outstanding(c, info) + len(ahead); info.NumAckPending > most {
		return fmt.Errorf("%d messages have no ack upstream, %d here", info.NumAckPending, most)
	}
	return nil
}

// Refusal is a NAK for the servers.
type Refusal struct {
	subject string
	delay   time.Duration // 0: the message is to come at once
}

func (r *Refusal) word() []byte {
	if r.delay <= 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay":%d}`, r.delay)
}

// Unclaimed returns what makes the servers deliver when this side would have: what they have delivered and no client
// has got comes at once, what clients hold or have refused when it is due here. The ack waits upstream began when the
// ghosts took the messages. Both sides have to stand still.
func (g *Ghosts) Unclaimed(ctx context.Context) (list []Refusal, err error) {
	copies, there, err := g.both(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	for i := range copies {
		c := &copies[i]
		info := there[c.Name]
		if info == nil || info.NumAckPending == 0 || c.Config.AckPolicy == server.AckNone {
			continue
		}
		for seq := c.State.Delivered.Stream + 1; seq <= info.Delivered.Stream; seq++ {
			list = append(list, Refusal{g.ackSubject(c.Name, seq, info.Delivered.Consumer), 0})
		}
		for seq, p := range c.State.Pending {
			left := max(p.Timestamp+int64(ackWait(&c.Config, c.State.Redelivered[seq]))-now, 0)
			list = append(list, Refusal{g.ackSubject(c.Name, seq, info.Delivered.Consumer), time.Duration(left)})
		}
	}
	return list, nil
}

// ackWait is how long a message that was delivered again so often may be without an ack.
func ackWait(cfg *server.ConsumerConfig, redelivered uint64) time.Duration {
	if n := uint64(len(cfg.BackOff)); n > 0 {
		return cfg.BackOff[min(redelivered, n-1)]
	}
	return cfg.AckWait
}

// GiveBack says what Unclaimed has returned, once the servers have the say: they deliver it to clients.
func (g *Ghosts) GiveBack(ctx context.Context, list []Refusal) error {
	for i := range list {
		if i == len(list)-1 { // when this one is answered, all are done with
			return g.say(ctx, list[i].subject, list[i].word())
		}
		if err := g.conn.Publish(list[i].subject, list[i].word()); err != nil {
			return err
		}
	}
	return nil
}
