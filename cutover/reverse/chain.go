package reverse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Bounds of a chain.
const (
	maxAhead   = 512             // publishes without an answer
	answerTime = 5 * time.Second // of one publish
	minRetry   = 100 * time.Millisecond
	maxRetry   = 5 * time.Second
)

// ErrForked says that the servers hold another message where one of the chain should be: somebody has published around
// the gateway, and the chain cannot go on.
var ErrForked = errors.New("the servers have a message of their own in the stream")

// Chain publishes a stream's records to the servers, each under the condition that the one before it is the last there.
type Chain struct {
	// Attend is called before something is published: what has to be upstream before it is so when it returns. Nil:
	// nothing.
	Attend func(context.Context) error

	conn     *nats.Conn
	from     cutover.Copy
	to       cutover.Upstream
	name     string
	epoch    uint64
	created  time.Time // of from
	log      *slog.Logger
	inbox    string
	answers  chan *nats.Msg
	denied   sync.Once // told that fillers cannot be deleted
	unerased []uint64  // fillers that run has left
	position struct {
		sync.Mutex
		seq    uint64 // the servers have everything up to here
		moved  chan struct{}
		err    error
		at     time.Time // when seq moved, or there was nothing to do any more
		stands time.Time // when the first of the failures was met since; zero: there was none
	}
}

// NewChain returns a chain for a stream of the account that conn is in.
func NewChain(
	conn *nats.Conn, from cutover.Copy, to cutover.Upstream,
	stream string, epoch uint64, log *slog.Logger,
) *Chain {
	c := &Chain{
		conn: conn, from: from, to: to, name: stream, epoch: epoch, log: log, created: from.Created(),
		inbox: cutover.ChainInbox + nuid.Next(),
	}
	c.position.moved = make(chan struct{})
	return c
}

// filler is the subject of what makes a hole. own: nobody else uses it.
func (c *Chain) filler(seq uint64) (subject string, own bool) {
	cfg := c.from.Config()
	return fillerOf(&cfg, seq)
}

// fillers is how many are stored before they are deleted: none may make the servers drop another message by a limit.
func (c *Chain) fillers() uint64 {
	cfg := c.from.Config()
	if cfg.MaxMsgs > 0 && cfg.DenyPurge { // it is not lifted there
		return 1
	}
	most := cfg.MaxMsgsPer
	if _, own := c.filler(0); own || most <= 0 {
		return maxAhead
	}
	return min(maxAhead, uint64(most)) //nolint:gosec // above 0
}

// Run publishes until ctx ends. A failure is met by looking where the servers stand and going on from there; only
// ErrForked is for good, and is returned.
func (c *Chain) Run(ctx context.Context) error {
	c.answers = make(chan *nats.Msg, maxAhead)
	sub, err := c.conn.ChanSubscribe(c.inbox+".*", c.answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	said := ""
	for pause := minRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) { //nolint:mnd // doubles
		before := c.Position()
		err := c.run(ctx)
		if ctx.Err() != nil {
			break
		}
		c.failed(err)
		if errors.Is(err, ErrForked) {
			return err
		}
		if c.Position() > before {
			pause, said = minRetry, ""
		}
		if text := fmt.Sprint(err); text != said { // what lasts is said once, and shown by Status
			said = text
			c.log.Warn("Reverse chain of {stream} broke and is taken up again: {error}",
				slog.String("stream", c.name), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return context.Cause(ctx)
}

// run is Run until something fails.
func (c *Chain) run(ctx context.Context) error {
	last, err := c.stand(ctx)
	if err != nil {
		return err
	}
	c.advance(last)
	lost := c.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer c.conn.RemoveStatusListener(lost)
	w := &window{c: c, next: last + 1, acked: last, lost: lost, fillers: c.unerased}
	defer func() { c.unerased = w.fillers }()
	for {
		durable, moved := c.from.Progress()
		if err := c.gone(); err != nil {
			return err
		}
		if w.next > durable {
			if err := w.erase(ctx); err != nil {
				return err
			}
			if err := c.rest(ctx, w, moved); err != nil {
				return err
			}
			continue
		}
		if f := c.Attend; f != nil {
			if err := f(ctx); err != nil {
				return err
			}
		}
		if err := w.upTo(ctx, durable); err != nil {
			return err
		}
	}
}

// idleLook is how often an idle chain looks whether the servers still stand where it has left them.
const idleLook = 500 * time.Millisecond

// rest waits until there is something to publish. A message that somebody else publishes meanwhile is ErrForked.
func (c *Chain) rest(ctx context.Context, w *window, moved <-chan struct{}) error {
	t := time.NewTicker(idleLook)
	defer t.Stop()
	c.caughtUp()
	defer c.caughtUp()
	for {
		select {
		case <-moved:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.lost: // with nothing on its way
			continue
		case <-t.C:
		}
		if err := c.gone(); err != nil {
			return err
		}
		if st, err := c.to.State(ctx, false); err == nil && st.LastSeq > w.acked {
			return fmt.Errorf("%w: their last sequence is %d, the chain's %d", ErrForked, st.LastSeq, w.acked)
		}
	}
}

// gone is an error if the stream here is not the one that the chain is about: what is in another of that name must not
// follow what the servers have.
func (c *Chain) gone() error {
	switch at := c.from.Created(); {
	case at.IsZero():
		return fmt.Errorf("%w: %s was deleted here", cutover.ErrNoStream, c.name)
	case !at.Equal(c.created):
		return fmt.Errorf("%w: %s was made at %v, the one here at %v", cutover.ErrIncarnation, c.name, c.created, at)
	}
	return nil
}

// stand returns the last sequence of the servers, whose message has to be that of the chain.
func (c *Chain) stand(ctx context.Context) (uint64, error) {
	c.settle()
	if err := c.gone(); err != nil {
		return 0, err
	}
	st, err := c.to.State(ctx, false)
	if err != nil {
		return 0, err
	}
	durable, _ := c.from.Progress()
	if st.LastSeq > durable {
		return 0, fmt.Errorf("%w: their last sequence is %d, here it is %d", ErrForked, st.LastSeq, durable)
	}
	theirs, err := c.to.Get(ctx, st.LastSeq)
	if errors.Is(err, cutover.ErrNoRecord) || st.LastSeq == 0 {
		return st.LastSeq, nil
	} else if err != nil {
		return 0, err
	}
	ours, err := c.from.Get(ctx, st.LastSeq)
	switch {
	case errors.Is(err, cutover.ErrNoRecord):
		if subject, _ := c.filler(st.LastSeq); string(theirs.Subject) == subject { // its deletion did not get through
			return st.LastSeq, c.erase(ctx, []uint64{st.LastSeq})
		}
		return st.LastSeq, nil // it was removed here since
	case err != nil:
		return 0, err
	case !same(ours, theirs):
		return 0, fmt.Errorf("%w: sequence %d differs from the one here", ErrForked, st.LastSeq)
	}
	return st.LastSeq, nil
}

// same reports whether the chain has published theirs for ours. It publishes what is left of a TTL.
func same(ours, theirs *cutover.Record) bool {
	return bytes.Equal(ours.Subject, theirs.Subject) && bytes.Equal(ours.Data, theirs.Data) &&
		slices.EqualFunc(lasting(ours.Header), lasting(theirs.Header), func(a, b cutover.Field) bool {
			return bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Value, b.Value)
		})
}

// lasting are the fields of a header that the chain publishes as they are.
func lasting(header []byte) []cutover.Field {
	return slices.DeleteFunc(cutover.Fields(nil, header), func(f cutover.Field) bool {
		return string(f.Name) == headerTTL || bytes.HasPrefix(f.Name, batchPrefix)
	})
}

const headerTTL = "Nats-TTL"

var batchPrefix = []byte("Nats-Batch-")

// settle throws answers away that nobody waits for any more.
func (c *Chain) settle() {
	for {
		select {
		case <-c.answers:
		default:
			return
		}
	}
}

// header returns the header of a record for its publish.
func (c *Chain) header(r *cutover.Record) nats.Header {
	h := nats.Header{}
	var room [16]cutover.Field
	for _, f := range cutover.Fields(room[:0], r.Header) {
		if len(f.Name) > 0 && !bytes.HasPrefix(f.Name, batchPrefix) {
			h[string(f.Name)] = append(h[string(f.Name)], string(f.Value))
		}
	}
	if ttl := h.Get(headerTTL); ttl != "" {
		if left := remaining(ttl, r.Time, time.Now()); left != "" {
			h.Set(headerTTL, left)
		}
	}
	h.Set(cutover.HeaderOrigin, strconv.FormatUint(c.epoch, 10))
	h.Set(nats.ExpectedLastSeqHdr, strconv.FormatUint(r.Seq-1, 10))
	return h
}

// remaining is what is left of a TTL, at least a second; empty if it has no end or is none.
func remaining(ttl string, since int64, now time.Time) string {
	d, ok := lifetime(ttl)
	if !ok {
		return ""
	}
	left := time.Unix(0, since).Add(d).Sub(now).Round(time.Second)
	return max(left, time.Second).String()
}

// lifetime reads a TTL; false if it has no end or is none.
func lifetime(ttl string) (time.Duration, bool) {
	d, err := time.ParseDuration(ttl)
	if n, failure := strconv.ParseInt(ttl, 10, 64); failure == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	return d, err == nil && d > 0
}

func (c *Chain) advance(seq uint64) {
	p := &c.position
	p.Lock()
	defer p.Unlock()
	p.err = nil
	if seq > p.seq {
		p.seq, p.at, p.stands = seq, time.Now(), time.Time{}
		close(p.moved)
		p.moved = make(chan struct{})
	}
}

func (c *Chain) failed(err error) {
	p := &c.position
	p.Lock()
	defer p.Unlock()
	if p.err = err; p.stands.IsZero() {
		p.stands = time.Now()
	}
}

// caughtUp says that the servers have everything: from now on the chain does not stand still, it has nothing to do.
func (c *Chain) caughtUp() {
	p := &c.position
	p.Lock()
	defer p.Unlock()
	p.at, p.stands = time.Now(), time.Time{}
}

// Position returns the sequence up to which the servers have everything.
func (c *Chain) Position() uint64 {
	c.position.Lock()
	defer c.position.Unlock()
	return c.position.seq
}

// Status is how a chain does.
type Status struct {
	Position uint64
	Err      error     // nil: it goes
	Since    time.Time // when Position moved last, or what stops it was met first
}

// Status returns how the chain does.
func (c *Chain) Status() Status {
	c.position.Lock()
	defer c.position.Unlock()
	since := c.position.at
	if !c.position.stands.IsZero() {
		since = c.position.stands
	}
	return Status{c.position.seq, c.position.err, since}
}

// Reach waits until the servers have everything up to seq.
func (c *Chain) Reach(ctx context.Context, seq uint64) error {
	for {
		c.position.Lock()
		at, moved, err := c.position.seq, c.position.moved, c.position.err
		c.position.Unlock()
		if at >= seq {
			return nil
		}
		if errors.Is(err, ErrForked) {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the servers have %d of %d: %w", at, seq, errors.Join(context.Cause(ctx), err))
		case <-time.After(minRetry): // err is looked at again
		}
	}
}
