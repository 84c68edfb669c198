package flip

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// mirror acknowledges on the servers what clients acknowledge here, round by round. Acks that are to be confirmed are
// confirmed here to the mirror, and by the mirror to the client when the servers have confirmed them too.
type mirror struct {
	c       *canary
	s       *stream
	log     *slog.Logger
	session bus.Session
	prefix  string // of the subjects on which acks are confirmed to the mirror
	kick    chan struct{}
	done    chan struct{}
	stop    context.CancelFunc

	mu sync.Mutex
	// The following are guarded by mu.
	next    uint64
	asked   map[uint64]waiting // acks that are on their way to the consumer here
	durable []waiting          // those that it has confirmed
	inRound int                // those that a round is about
}

// waiting is an ack that a client wants to be confirmed.
type waiting struct {
	reply  string
	seq    uint64
	acks   bool // the message is done: not a NAK, not progress
	header []byte
	at     time.Time
}

// maxWaiting bounds the acks that wait to be confirmed; beyond it they are confirmed by this side alone, to no client.
const maxWaiting = 1 << 16

// mirrorEvery is how often the servers' consumer is brought near without being asked to, mirrorRetry how long a failed
// round is waited for.
const (
	mirrorEvery = 200 * time.Millisecond
	mirrorRetry = 250 * time.Millisecond
	mirrorTime  = 5 * time.Second // of one round
	forgetAfter = 30 * time.Second
	// mirrorPatience is how long the servers' consumer may be elsewhere before that is said: what a busy server has not
	// given out, or counted, at once, it has a moment later.
	mirrorPatience = 2 * time.Second
)

// newMirror makes the mirror of a canary, which does nothing before startMirror.
func (e *Engine) newMirror(s *stream, c *canary) error {
	m := &mirror{
		c: c, s: s, log: e.o.Logger, prefix: "_EHDB.confirm." + nuid.Next() + ".",
		kick: make(chan struct{}, 1), done: make(chan struct{}), asked: make(map[uint64]waiting),
	}
	session, err := e.o.Bus.Open(bus.KindService, bus.Identity{Account: s.name.Account}, m)
	if err != nil {
		return err
	}
	if _, err = session.Subscribe("1", m.prefix+"*", ""); err != nil {
		session.Close()
		return err
	}
	m.session, c.mirror = session, m
	return nil
}

// startMirror runs the mirror of a canary, once first has succeeded; it gives up on errTaken. first may be nil.
func (e *Engine) startMirror(s *stream, c *canary, first func(context.Context, *stream, *canary) error) {
	m := c.mirror
	ctx, stop := context.WithCancel(e.ctx)
	m.stop = stop
	e.running.Go(func() {
		defer close(m.done)
		defer m.session.Close()
		for first != nil {
			err := first(ctx, s, c)
			if err == nil {
				break
			}
			c.met(err)
			if errors.Is(err, errTaken) || sleep(ctx, mirrorRetry) != nil {
				return
			}
		}
		m.run(ctx)
	})
}

// close ends the mirror. What waits to be confirmed was confirmed, or never is.
func (m *mirror) close() {
	m.stop()
	<-m.done
}

// acked is shown an ack of a client on its way to the consumer here.
func (m *mirror) acked(a *relay.Mirrored) {
	defer m.poke()
	if len(a.Msg.Reply) == 0 || a.Next {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.asked) >= maxWaiting {
		m.forget()
	}
	m.next++
	m.asked[m.next] = waiting{reply: string(a.Msg.Reply), seq: a.Seq, acks: a.Done, at: time.Now()}
	a.Msg.Reply = strconv.AppendUint([]byte(m.prefix), m.next, 10)
}

// forget drops what has waited for so long that no client waits any more. mu is held.
func (m *mirror) forget() {
	for id, w := range m.asked {
		if time.Since(w.at) > forgetAfter {
			delete(m.asked, id)
		}
	}
}

func (m *mirror) poke() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Deliver implements bus.Sink: the consumer here confirms, or refuses, an ack.
func (m *mirror) Deliver(batch []bus.Delivery) <-chan struct{} {
	m.mu.Lock()
	for i := range batch {
		msg := &batch[i].Msg
		id, err := strconv.ParseUint(string(bytes.TrimPrefix(msg.Target(), []byte(m.prefix))), 10, 64)
		w, ok := m.asked[id]
		if err != nil || !ok {
			continue
		}
		delete(m.asked, id)
		w.header = slices.Clone(msg.Header)
		m.durable = append(m.durable, w)
	}
	m.mu.Unlock()
	m.poke()
	return nil
}

// take returns what the consumer here has confirmed.
func (m *mirror) take() []waiting {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.durable
	m.durable = nil
	m.inRound += len(list) // beside those of a round that has failed
	return list
}

// run mirrors until ctx ends.
func (m *mirror) run(ctx context.Context) {
	t := time.NewTicker(mirrorEvery)
	defer t.Stop()
	var left []waiting
	said, since := "", time.Now()
	for {
		left = append(left, m.take()...)
		err := m.round(ctx, left)
		if err == nil {
			left, said, since = left[:0], "", time.Now()
			m.mu.Lock()
			m.inRound = 0
			m.mu.Unlock()
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.c.met(err)
			if text := err.Error(); text != said && time.Since(since) > mirrorPatience {
				said = text
				m.log.Warn("Consumer {consumer} of {stream} on the servers is not where it is here: {error}",
					slog.String("consumer", m.c.Consumer), slog.String("stream", m.s.name.String()),
					slog.Any("error", err))
			}
			_ = sleep(ctx, mirrorRetry)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
		case <-t.C:
		}
	}
}

// round brings the servers' consumer to where the one here is, and confirms to clients what the servers have confirmed.
func (m *mirror) round(ctx context.Context, list []waiting) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	if _, err := m.c.bring(ctx, m.s); err != nil {
		return err
	}
	var seqs []uint64
	for i := range list {
		if list[i].acks && len(list[i].header) == 0 { // refused by the consumer here: it was never delivered
			seqs = append(seqs, list[i].seq)
		}
	}
	if err := m.c.ghost.Confirm(ctx, seqs); err != nil {
		return err
	}
	for i := range list {
		m.session.Publish(&bus.Msg{Subject: []byte(list[i].reply), Header: list[i].header})
	}
	m.session.Flush()
	return nil
}

// answerLate is how long the consumer here may take to confirm an ack; one that took longer is not waited for.
const answerLate = time.Second

// flush waits until everything that the consumer here has confirmed, or is about to, is confirmed to the clients.
func (m *mirror) flush(ctx context.Context) error {
	for {
		m.poke()
		m.mu.Lock()
		n := len(m.durable) + m.inRound
		for _, w := range m.asked { // the consumer here has done with it, and its word is on its way
			if time.Since(w.at) < answerLate {
				n++
			}
		}
		m.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := sleep(ctx, pollTime); err != nil {
			return fmt.Errorf("%d acks are not confirmed by the servers: %w", n, err)
		}
	}
}

// brought is what was brought to the servers, and what they said then.
type brought struct {
	at   *cutover.ConsumerCopy
	info *server.ConsumerInfo
}

// bring brings the servers' consumer to where the one here is.
func (c *canary) bring(ctx context.Context, s *stream) (brought, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return brought{}, fmt.Errorf("waiting for another: %w", context.Cause(ctx))
	}
	list, err := s.copy.Consumers()
	if err != nil {
		return brought{}, err
	}
	i := slices.IndexFunc(list, func(k cutover.ConsumerCopy) bool { return k.Name == c.Consumer })
	if i < 0 {
		return brought{}, errLost
	}
	if err := s.copy.Durable(ctx, 0); err != nil { // the servers are told what cannot be undone here
		return brought{}, err
	}
	at := &list[i]
	c.mu.Lock()
	c.info = *at
	again := time.Now().After(c.next)
	if again {
		c.next = time.Now().Add(max(ackWait(&c.cfg)/3, 100*time.Millisecond)) //nolint:mnd // well before it is over
	}
	c.mu.Unlock()
	info, err := c.ghost.Bring(ctx, at)
	if err != nil {
		return brought{}, err
	}
	if again {
		err = c.ghost.Working(at)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.err = time.Now(), err
	return brought{at, info}, err
}

// ackWait is the shortest time after which the servers deliver a message again.
func ackWait(cfg *server.ConsumerConfig) time.Duration {
	wait := cfg.AckWait
	for _, b := range cfg.BackOff {
		wait = min(wait, b)
	}
	const least = time.Second
	return max(wait, least)
}

// sameConsumer tells whether two configurations are alike but for what pausing and the servers' labels change.
func sameConsumer(a, b server.ConsumerConfig) bool {
	a.PauseUntil, b.PauseUntil, a.Metadata, b.Metadata = nil, nil, nil, nil
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}
