package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// chaosStream is what the programs know for certain about a stream: what they tried to publish, what was acknowledged, and
// what each reader got.
type chaosStream struct {
	name  string
	keeps bool // what was acknowledged by its consumers, too

	mu      sync.Mutex
	sent    map[string]bool
	acked   map[string]uint64 // sequences, by id
	at      map[uint64]string // ids, by sequence
	readers map[string]*chaosReader
	removed map[uint64]bool // deleted one by one, perhaps
	purged  uint64          // everything up to here was removed, perhaps
	gone    uint64          // everything up to here was removed
}

// chaosReader is a reader of a stream: a durable consumer, or an ordered one.
type chaosReader struct {
	seen      map[uint64]*chaosSight
	confirms  bool // it waits until its acks are confirmed
	confirmed int
	again     []string // given in answer to a request that was made behind a confirmed ack
	forgiven  int      // the same, and the nats-server was killed in between
	last      uint64   // of an ordered one
	counts    map[string]int
}

type chaosSight struct {
	id        string
	times     int
	confirmed time.Time // zero: it was not
}

func newChaosStream(name string, keeps bool, readers ...string) *chaosStream {
	s := &chaosStream{
		name: name, keeps: keeps, sent: make(map[string]bool), acked: make(map[string]uint64),
		at: make(map[uint64]string), readers: make(map[string]*chaosReader), removed: make(map[uint64]bool),
	}
	for _, r := range readers {
		s.readers[r] = &chaosReader{seen: make(map[uint64]*chaosSight), counts: make(map[string]int)}
	}
	return s
}

func (s *chaosStream) sending(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[id] = true
}

func (s *chaosStream) published(c *chaos, id string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, given := s.at[seq]; given && other != id {
		c.bad("%s: sequence %d was acknowledged for %s and for %s", s.name, seq, other, id)
	}
	s.acked[id], s.at[seq] = seq, id
}

// delivered notes a delivery, in answer to a request that was made at asked; zero: nobody can tell.
func (s *chaosStream) delivered(c *chaos, reader string, seq uint64, id string, asked time.Time) *chaosSight {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[reader]
	if !s.sent[id] {
		c.bad("%s: %s got %q, which nobody has sent", s.name, reader, id)
	}
	g := r.seen[seq]
	if g == nil {
		g = &chaosSight{id: id}
		r.seen[seq] = g
	}
	g.times++
	switch {
	case g.id != id:
		c.bad("%s: %s got %q as %d, and before that %q", s.name, reader, id, seq, g.id)
	case asked.IsZero() || g.confirmed.IsZero() || !g.confirmed.Before(asked):
	case c.killed.behind(g.confirmed):
		r.forgiven++
		r.confirmed--
		g.confirmed = time.Time{} // it has to be acknowledged once more
	default:
		r.again = append(r.again, fmt.Sprintf("%d (%s) acknowledged %.2f, asked %.2f", seq, id,
			g.confirmed.Sub(c.began).Seconds(), asked.Sub(c.began).Seconds()))
	}
	return g
}

func (s *chaosStream) confirmed(reader string, g *chaosSight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.confirmed.IsZero() {
		s.readers[reader].confirmed++
	}
	g.confirmed = time.Now()
}

// inOrder notes what an ordered reader gets: sequences ascend, and so does what one publisher has counted.
func (s *chaosStream) inOrder(c *chaos, reader string, seq uint64, id string) {
	s.delivered(c, reader, seq, id, time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[reader]
	if seq <= r.last {
		c.bad("%s: %s got sequence %d behind %d", s.name, reader, seq, r.last)
	}
	r.last = seq
	if publisher, n, ok := counted(id); ok {
		if before, known := r.counts[publisher]; known && n <= before {
			c.bad("%s: %s got %s behind number %d of that publisher", s.name, reader, id, before)
		}
		r.counts[publisher] = n
	}
}

// counted takes an id of a publisher that publishes one message after the other apart.
func counted(id string) (publisher string, n int, ok bool) {
	publisher, number, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	return publisher, n, ok && err == nil && strings.HasPrefix(publisher, "p")
}

// begun is the number of messages of which a reader has seen all up to there.
func (s *chaosStream) begun() (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		next := last + 1
		for _, r := range s.readers {
			if r.seen[next] == nil && next > s.purged && !s.removed[next] {
				return last
			}
		}
		if s.at[next] == "" && next > s.purged && !s.removed[next] {
			return last
		}
		last = next
	}
}

// unconfirmed is how many acks of a reader have to be confirmed yet.
func (s *chaosStream) unconfirmed(reader string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[reader]
	for seq, g := range r.seen {
		if r.confirms && g.confirmed.IsZero() && seq > s.purged && !s.removed[seq] {
			n++
		}
	}
	return n
}

// missing returns what a reader lacks of what was acknowledged and not removed.
func (s *chaosStream) missing(reader string) (seqs []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[reader]
	for _, seq := range s.acked {
		if r.seen[seq] == nil && seq > s.purged && !s.removed[seq] {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// split sorts what is lost by where it lies in what a reader got: before all of it, amid it, or behind.
func (s *chaosStream) split(reader string, lost []uint64) (prefix, middle, postfix []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := slices.Sorted(maps.Keys(s.readers[reader].seen))
	for _, seq := range lost {
		switch {
		case len(got) == 0 || seq > got[len(got)-1]:
			postfix = append(postfix, seq)
		case seq < got[0]:
			prefix = append(prefix, seq)
		default:
			middle = append(middle, seq)
		}
	}
	return prefix, middle, postfix
}

func (s *chaosStream) count() (sent, acked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent), len(s.acked)
}
