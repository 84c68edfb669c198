package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
)

// claim is which streams a gateway has the say about, or may have in a moment.
type claim struct {
	ID      string          `json:"id"`
	Server  string          `json:"server"`
	Epoch   uint64          `json:"epoch"` // the journal's, or an earlier one
	Streams []claimedStream `json:"streams"`
	At      time.Time       `json:"at"`

	revision uint64 // 0: there is none
}

// claimedStream is one of them, and how far it was.
type claimedStream struct {
	Account string    `json:"account"`
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	Last    uint64    `json:"last_seq"`
}

func (s *claimedStream) String() string {
	return fmt.Sprintf("%s (up to message %d)", cutover.Scope{Account: s.Account, Stream: s.Stream}, s.Last)
}

func (c *claim) own(id string) bool { return c.revision == 0 || c.ID == id }

// What an operator can do about a claim.
const (
	drop       = "nats kv del " + ClaimBucket + " " + key + ", asked of the servers, lets their streams have the say"
	fixForeign = "Start the gateway with that. If it is gone for good: " + drop
	fixStale   = "Start with the newest. If there is no newer one: empty this one, and " + drop
)

// claimed reads the claim. It is an error if another gateway's speaks of streams, or if it says more than is here.
func (l *Lease) claimed(ctx context.Context, kv jetstream.KeyValue) (*claim, error) {
	c := &claim{}
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.revision = e.Revision()
	if err := json.Unmarshal(e.Value(), c); err != nil {
		return nil, fmt.Errorf("the key %s of the bucket %s on the servers is no claim: %w", key, ClaimBucket, err)
	}
	if !c.own(l.id) && len(c.Streams) > 0 {
		return nil, fmt.Errorf("%w: %s, as of %s: %s. Their messages are in its own store_dir, which is not the one "+
			"here. %s", ErrElsewhere, c.Server, c.At.Format(time.RFC3339), c.list(), fixForeign)
	}
	l.mu.Lock()
	checked := l.checked
	l.mu.Unlock()
	if c.own(l.id) && !checked {
		if err := c.compare(l.standing()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *claim) list() string {
	var out []string
	for i := range c.Streams {
		out = append(out, c.Streams[i].String())
	}
	return strings.Join(out, ", ")
}

// compare is ErrStale if a claim that is this gateway's own says more than the store_dir has. Where no stream was or is
// here nothing is lost by that: the servers have all.
func (c *claim) compare(here Standing) error {
	if c.revision == 0 || len(c.Streams)+len(here.Streams) == 0 {
		return nil
	}
	if c.Epoch > here.Epoch {
		return fmt.Errorf("%w: authority has changed up to epoch %d since, here it is %d. %s", ErrStale,
			c.Epoch, here.Epoch, fixStale)
	}
	for i := range c.Streams {
		s := &c.Streams[i]
		at, ok := here.Streams[cutover.Scope{Account: s.Account, Stream: s.Stream}]
		if ok && at.Created.Equal(s.Created) && at.Last < s.Last {
			return fmt.Errorf("%w: %s was there, here is %d. %s", ErrStale, s, at.Last, fixStale)
		}
	}
	return nil
}

// claim writes what this gateway has the say about, if that is not what the servers know already.
func (l *Lease) claim(ctx context.Context, kv jetstream.KeyValue, old *claim) error {
	here := l.standing()
	next := &claim{ID: l.id, Server: l.o.Server, Epoch: here.Epoch, At: time.Now().UTC(), Streams: streams(here)}
	if old.ID == l.id && old.Epoch > here.Epoch { // the store_dir was restored, while the servers had all
		next.Epoch = old.Epoch
		l.o.Raise(old.Epoch)
	}
	l.mu.Lock()
	l.checked = true
	l.mu.Unlock()
	if next.same(old) || old.revision == 0 && len(next.Streams) == 0 && next.Epoch == 0 {
		return nil
	}
	doc, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if old.revision == 0 {
		_, err = kv.Create(ctx, key, doc)
	} else {
		_, err = kv.Update(ctx, key, doc, old.revision)
	}
	return err
}

func (c *claim) same(old *claim) bool {
	return c.ID == old.ID && c.Epoch == old.Epoch && slices.EqualFunc(c.Streams, old.Streams,
		func(a, b claimedStream) bool {
			return a.Account == b.Account && a.Stream == b.Stream && a.Last == b.Last && a.Created.Equal(b.Created)
		})
}

// standing is what the journal says, and what is about to be in it.
func (l *Lease) standing() Standing {
	here := l.o.Standing()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(here.Streams)
	if all == nil {
		all = make(map[cutover.Scope]Stream)
	}
	for s := range l.intents {
		if _, ok := all[s]; !ok {
			all[s] = Stream{}
		}
	}
	here.Streams = all
	return here
}

func streams(here Standing) []claimedStream {
	out := make([]claimedStream, 0, len(here.Streams))
	for s, at := range here.Streams {
		out = append(out, claimedStream{s.Account, s.Stream, at.Created, at.Last})
	}
	slices.SortFunc(out, func(a, b claimedStream) int {
		return strings.Compare(a.Account+"/"+a.Stream, b.Account+"/"+b.Stream)
	})
	return out
}

// Claim tells the servers that this gateway is about to have the say about a stream. It fails where another has the
// lease. done is to be called when the journal says what came of it.
func (l *Lease) Claim(ctx context.Context, s cutover.Scope) (done func(), err error) {
	l.mu.Lock()
	l.intents[s]++
	l.mu.Unlock()
	done = func() {
		l.mu.Lock()
		if l.intents[s]--; l.intents[s] <= 0 {
			delete(l.intents, s)
		}
		l.mu.Unlock()
		l.Kick()
	}
	if err := l.look(ctx); err != nil {
		done()
		return nil, fmt.Errorf("the servers were not told that %s is about to be served from here: %w", s, err)
	}
	return done, nil
}
