package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/origin"
)

// casLedger is what is known of counters that are counted up under the condition that nobody was faster. Every version
// stays in the stream, so that what happened can be told from the end alone: it is one chain, or not.
type casLedger struct {
	value atomic.Int64 // of the key-value bucket: the last that was acknowledged

	mu      sync.Mutex
	ok      map[uint64]string // payloads that were acknowledged, by sequence
	refused map[string]bool   // payloads of which a client was told that somebody was faster
	high    map[string]uint64 // by subject, the last sequence that was acknowledged
}

func (l *casLedger) floor(subject string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high[subject]
}

func (l *casLedger) note(subject, payload string, seq uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ok == nil {
		l.ok, l.refused, l.high = make(map[uint64]string), make(map[string]bool), make(map[string]uint64)
	}
	var api *jetstream.APIError
	switch {
	case err == nil:
		l.ok[seq] = payload
		l.high[subject] = max(l.high[subject], seq)
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		l.refused[payload] = true
	}
}

// counter counts.
func (c *chaos) counter(w int) {
	js := c.jetStream()
	c.pubs.Go(func() {
		for i := 0; !c.quitting(); i++ {
			subject := fmt.Sprintf("CAS.%d", (w+i)%2)
			ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
			c.countOnce(ctx, js, subject, fmt.Sprintf("%d-%d", w, i))
			cancel()
			time.Sleep(20 * time.Millisecond)
		}
	})
}

func (c *chaos) countOnce(ctx context.Context, js jetstream.JetStream, subject, id string) {
	floor := c.cas.floor(subject)
	s, err := js.Stream(ctx, "CAS")
	if err != nil {
		return
	}
	value, version := 0, uint64(0)
	m, err := s.GetLastMsgForSubject(ctx, subject)
	switch {
	case err == nil:
		first, _, _ := strings.Cut(string(m.Data), " ")
		value, _ = strconv.Atoi(first)
		version = m.Sequence
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return
	}
	if version < floor {
		c.bad("%s: version %d was read, and %d was acknowledged before", subject, version, floor)
	}
	payload := fmt.Sprintf("%d %s", value+1, id)
	ack, err := js.Publish(ctx, subject, []byte(payload), jetstream.WithExpectLastSequencePerSubject(version))
	if err != nil {
		c.cas.note(subject, payload, 0, err)
		return
	}
	c.cas.note(subject, payload, ack.Sequence, nil)
}

// check tells whether what is stored is one chain for each counter, with all that was acknowledged and nothing that was
// refused.
func (l *casLedger) check(c *chaos, stored map[uint64]chaosContent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := make(map[string]int)
	for _, seq := range slices.Sorted(maps.Keys(stored)) {
		m := stored[seq]
		first, _, _ := strings.Cut(m.data, " ")
		if n, err := strconv.Atoi(first); err != nil || n != at[m.subject]+1 {
			c.bad("%s: sequence %d is %q behind %d", m.subject, seq, m.data, at[m.subject])
		}
		at[m.subject]++
		if l.refused[m.data] {
			c.bad("%s: %q was refused, and is stored as %d", m.subject, m.data, seq)
		}
	}
	for seq, payload := range l.ok {
		if stored[seq].data != payload {
			c.bad("CAS: sequence %d was acknowledged for %q, and is %q", seq, payload, stored[seq].data)
		}
	}
	c.note("counters: %v, %d conflicts", at, len(l.refused))
}

// chaosContent is a stored message.
type chaosContent struct {
	subject, data string
	hash          uint64
}

// readChaos reads a stream as a server has it.
func (c *chaos) readChaos(at *origin.Conn, name string) (map[uint64]chaosContent, server.StreamState, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	s := at.Stream(name)
	st, err := s.State(ctx, true)
	if err != nil {
		return nil, st, err
	}
	out := make(map[uint64]chaosContent)
	var failure error
	err = s.Read(ctx, 1, func(r *cutover.Record, err error) bool {
		if err != nil {
			failure = err
			return false
		}
		out[r.Seq] = chaosContent{string(r.Subject), string(r.Data), cutover.Hash(r.Subject, r.Header, r.Data)}
		return true
	})
	return out, st, errors.Join(failure, err)
}

// verify takes every stream here while the programs go on, ends them, and checks everything, there and back.
func (c *chaos) verify() {
	c.t.Helper()
	names := slices.Sorted(maps.Keys(c.chaosScopes()))
	for _, name := range names {
		c.finally(name, "ehdb")
	}
	close(c.quit)
	done := make(chan struct{})
	go func() { c.pubs.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		c.bad("publishes have no acknowledgement though nothing fails any more")
	}
	c.drain()
	here, there := c.dial(fmt.Sprintf("nats://127.0.0.1:%d", c.client)), c.dial(c.nats.url())
	for _, name := range names {
		stored := c.equal(here, there, name)
		c.finally(name, "nats")
		c.returned(there, name, stored)
	}
	c.account()
	c.cancel()
	c.takers.Wait()
}

// finally moves a stream, now that nothing fails any more.
func (c *chaos) finally(name, to string) {
	actor := map[string]any{"by": "test", "reason": "the end", "scope": "$G/" + name}
	verb := "/rollback"
	if to == "ehdb" {
		verb, actor["retries"], actor["force"] = "/flip", 5, forced
	}
	err := c.retry(time.Minute, func() error {
		if s, err := c.gw.Load().stream(name); err == nil && s.Authority == to {
			return nil
		}
		return c.gw.Load().ask(http.MethodPost, verb, actor, new(face.Move))
	})
	if err != nil {
		c.bad("%s cannot be moved to %s at the end: %v", name, to, errors.Join(err, c.gates(name)))
	}
}

func (c *chaos) dial(url string) *origin.Conn {
	c.t.Helper()
	at, err := origin.Dial(origin.Options{Account: "$G", URLs: []string{url}, ServerName: "test"})
	noErr(c.t, err)
	c.t.Cleanup(at.Close)
	return at
}

// drain waits until everything that was acknowledged was delivered, or nothing more comes for several times the ack wait.
func (c *chaos) drain() {
	left := func() (n int) {
		for _, s := range c.streams {
			for reader := range s.readers {
				n += len(s.missing(reader)) + s.unconfirmed(reader)
			}
		}
		return n
	}
	for n, since := left(), time.Now(); n > 0; time.Sleep(50 * time.Millisecond) {
		if now := left(); now < n {
			n, since = now, time.Now()
		}
		if time.Since(since) > 5*chaosWait {
			break
		}
		n = min(n, left())
	}
	for _, s := range c.streams {
		for reader := range s.readers {
			if lost := s.missing(reader); len(lost) > 0 {
				prefix, middle, postfix := s.split(reader, lost)
				c.bad("%s: %s lost %d messages: prefix %v, middle %v, postfix %v", s.name, reader, len(lost), prefix, middle, postfix)
			}
			switch n := s.unconfirmed(reader); {
			case n == 0:
			case !s.keeps && c.killed.any(): // it may have the ack and not know of the delivery: no answer, and no message
				c.note("%s: %d acks of %s are not confirmed", s.name, n, reader)
			default:
				c.bad("%s: %d acks of %s are not confirmed", s.name, n, reader)
			}
		}
	}
	c.note("drained")
}

// equal waits until the servers have all of a stream that is served from here, checks what is stored, and returns that.
// What was removed here the servers may have until it is given back.
func (c *chaos) equal(here, there *origin.Conn, name string) map[uint64]chaosContent {
	var ours map[uint64]chaosContent
	err := c.retry(30*time.Second, func() error {
		var a server.StreamState
		var err error
		ours, a, err = c.readChaos(here, name)
		theirs, b, err2 := c.readChaos(there, name)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if a.LastSeq != b.LastSeq || len(ours) != int(a.Msgs) { //nolint:gosec // a number of messages
			return fmt.Errorf("here %d messages up to %d, %d read; the servers have up to %d", a.Msgs, a.LastSeq, len(ours), b.LastSeq)
		}
		for seq, m := range ours {
			if theirs[seq] != m {
				return fmt.Errorf("sequence %d is %+v here, and %+v there", seq, m, theirs[seq])
			}
		}
		return c.equalConsumers(here, there, name)
	})
	if err != nil {
		c.bad("%s is not equal on both sides: %v", name, err)
	}
	if name == "CAS" {
		c.cas.check(c, ours)
	}
	if s := c.streams[name]; s != nil {
		s.stored(c, ours)
	}
	return ours
}

// returned checks that the servers have what was stored when they have the say again, and nothing else.
func (c *chaos) returned(there *origin.Conn, name string, stored map[uint64]chaosContent) {
	theirs, st, err := c.readChaos(there, name)
	if err != nil || !maps.Equal(theirs, stored) || int(st.Msgs) != len(stored) { //nolint:gosec // a number of messages
		c.bad("%s is not what it was when it is given back: %d messages of %d, %v", name, st.Msgs, len(stored), err)
	}
}

// equalConsumers is why the consumers of both sides are not alike.
func (c *chaos) equalConsumers(here, there *origin.Conn, name string) error {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	ours, err := here.Stream(name).Consumers(ctx)
	theirs, err2 := there.Stream(name).Consumers(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	look := func(list []*server.ConsumerInfo) (out []string) {
		for _, i := range list {
			if i.Config.AckPolicy != server.AckNone { // those have no counterpart while the stream is served from here
				out = append(out, fmt.Sprintf("%s: pending %d, outstanding %d", i.Name, i.NumPending, i.NumAckPending))
			}
		}
		slices.Sort(out)
		return out
	}
	if a, b := look(ours), look(theirs); !slices.Equal(a, b) {
		return fmt.Errorf("consumers %q here, %q there", a, b)
	}
	return nil
}

// stored checks what a stream has at the end against what was acknowledged.
func (s *chaosStream) stored(c *chaos, got map[uint64]chaosContent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keeps {
		if len(got) > 0 {
			c.bad("%s: %d messages are stored that every consumer has acknowledged: %v", s.name, len(got), slices.Sorted(maps.Keys(got)))
		}
		return
	}
	ids := make(map[string]uint64)
	for seq, m := range got {
		if !s.sent[m.data] {
			c.bad("%s: sequence %d is %q, which nobody has sent", s.name, seq, m.data)
		}
		if other, twice := ids[m.data]; twice {
			c.bad("%s: %s is stored as %d and as %d", s.name, m.data, other, seq)
		}
		ids[m.data] = seq
		if id, acked := s.at[seq]; acked && id != m.data {
			c.bad("%s: sequence %d was acknowledged for %s, and is %s", s.name, seq, id, m.data)
		}
		if seq <= s.gone {
			c.bad("%s: sequence %d is back, which was purged", s.name, seq)
		}
	}
	for seq, id := range s.at {
		if got[seq].data != id && seq > s.purged && !s.removed[seq] {
			c.bad("%s: %s was acknowledged as %d, and is not there", s.name, id, seq)
		}
	}
}

// account says what the programs have seen.
func (c *chaos) account() {
	for _, name := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[name]
		sent, acked := s.count()
		s.mu.Lock()
		for reader, r := range s.readers {
			if len(r.again) > 0 {
				c.bad("%s: %s got %d messages behind their confirmed ack: %s", name, reader, len(r.again), strings.Join(r.again[:min(10, len(r.again))], "; "))
			}
			c.note("%s: %d sent, %d acknowledged, %s saw %d, confirmed %d, %d forgotten by the killed server", name, sent, acked, reader, len(r.seen), r.confirmed, r.forgiven)
		}
		s.mu.Unlock()
	}
	c.mu.Lock()
	want := c.config
	c.mu.Unlock()
	s, err := c.js.Stream(c.ctx, "ORDERS")
	if err != nil {
		c.bad("ORDERS: %v", err)
		return
	}
	var n int
	if _, err := fmt.Sscanf(s.CachedInfo().Config.Description, "change %d", &n); err != nil || n < want {
		c.bad("ORDERS is configured by %q, and change %d was confirmed", s.CachedInfo().Config.Description, want)
	}
}
