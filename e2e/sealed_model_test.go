package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/noetl/ehdb-gateway/subjects"
)

// sealedMsg is a message as the model knows it.
type sealedMsg struct {
	seq     uint64
	subject string
	data    string
	id      string // Nats-Msg-Id
	want    int    // consumers that have still to acknowledge it, as bits
}

// sealedModel is what a stream must hold, exactly.
type sealedModel struct {
	msgs []sealedMsg // ascending
	last uint64

	perSubject int      // max_msgs_per_subject; 0: none
	most       int      // max_msgs; 0: none
	consumers  []string // filters of the durable consumers
	limits     bool     // their acks do not remove messages
	sums       map[string]int64
}

// step is one change that is made as a whole, or not at all.
type step func(*sealedModel)

func (m *sealedModel) clone() *sealedModel {
	c := *m
	c.msgs, c.sums = slices.Clone(m.msgs), maps.Clone(m.sums)
	return &c
}

func (m *sealedModel) first() uint64 {
	if len(m.msgs) == 0 {
		return m.last + 1
	}
	return m.msgs[0].seq
}

func (m *sealedModel) find(seq uint64) int {
	i, ok := slices.BinarySearchFunc(m.msgs, seq, func(a sealedMsg, s uint64) int {
		return int(int64(a.seq) - int64(s))
	})
	if !ok {
		return -1
	}
	return i
}

func (m *sealedModel) lastOf(subject string) uint64 {
	for _, s := range slices.Backward(m.msgs) {
		if s.subject == subject {
			return s.seq
		}
	}
	return 0
}

// matching returns the messages that match filter and have at least the sequence from.
func (m *sealedModel) matching(filter string, from uint64) (list []sealedMsg) {
	for _, s := range m.msgs {
		if s.seq >= from && subjects.Match(filter, s.subject) {
			list = append(list, s)
		}
	}
	return list
}

func (m *sealedModel) remove(gone func(sealedMsg) bool) { m.msgs = slices.DeleteFunc(m.msgs, gone) }

func published(subject, data, id string) step {
	return func(m *sealedModel) {
		m.last++
		s := sealedMsg{seq: m.last, subject: subject, data: data, id: id}
		for i, f := range m.consumers {
			if subjects.Match(f, subject) {
				s.want |= 1 << i
			}
		}
		if !m.limits && s.want == 0 {
			return
		}
		m.msgs = append(m.msgs, s)
		m.limit(subject)
	}
}

func (m *sealedModel) limit(subject string) {
	if n := m.count(subject); m.perSubject > 0 && n > m.perSubject {
		m.purge(subject, 0, m.perSubject)
	}
	if m.most > 0 && len(m.msgs) > m.most {
		m.msgs = m.msgs[len(m.msgs)-m.most:]
	}
}

func (m *sealedModel) count(subject string) (n int) {
	for i := range m.msgs {
		if m.msgs[i].subject == subject {
			n++
		}
	}
	return n
}

// purge removes what matches filter below upTo (0: all) but for the newest keep.
func (m *sealedModel) purge(filter string, upTo uint64, keep int) {
	hits := m.matching(filter, 0)
	if upTo > 0 {
		hits = slices.DeleteFunc(hits, func(s sealedMsg) bool { return s.seq >= upTo })
	}
	hits = hits[:max(0, len(hits)-keep)]
	gone := map[uint64]bool{}
	for _, s := range hits {
		gone[s.seq] = true
	}
	m.remove(func(s sealedMsg) bool { return gone[s.seq] })
}

// rolledUp replaces what matches filter by one message.
func rolledUp(filter, subject, data string) step {
	return func(m *sealedModel) {
		m.purge(filter, 0, 0)
		published(subject, data, "")(m)
	}
}

func deletedSeq(seq uint64) step {
	return func(m *sealedModel) { m.remove(func(s sealedMsg) bool { return s.seq == seq }) }
}

func purged(filter string, upTo uint64, keep int) step {
	return func(m *sealedModel) { m.purge(filter, upTo, keep) }
}

// ackedBy removes a consumer's claim on a message, and the message with the last claim.
func ackedBy(seq uint64, consumer int) step {
	return func(m *sealedModel) {
		if i := m.find(seq); i >= 0 {
			if m.msgs[i].want &^= 1 << consumer; m.msgs[i].want == 0 && !m.limits {
				m.remove(func(s sealedMsg) bool { return s.seq == seq })
			}
		}
	}
}

func added(subject string, n int64) step {
	return func(m *sealedModel) {
		m.sums[subject] += n
		published(subject, `{"val":"`+strconv.FormatInt(m.sums[subject], 10)+`"}`, "")(m)
	}
}

// left returns how many messages each consumer has not acknowledged.
func (m *sealedModel) left() (n []uint64) {
	for i := range m.consumers {
		n = append(n, 0)
		for _, s := range m.msgs {
			n[i] += uint64(s.want >> i & 1)
		}
	}
	return n
}

// differs says in what the stored messages are not those of the model; "" if they are.
func (m *sealedModel) differs(stored []sealedMsg, first, last uint64) string {
	var b strings.Builder
	if last != m.last || first != m.first() {
		fmt.Fprintf(&b, "stored %d..%d, want %d..%d; ", first, last, m.first(), m.last)
	}
	for i, j := 0, 0; (i < len(stored) || j < len(m.msgs)) && b.Len() < 600; {
		switch {
		case j == len(m.msgs) || i < len(stored) && stored[i].seq < m.msgs[j].seq:
			fmt.Fprintf(&b, "%d %s should not be there; ", stored[i].seq, stored[i].subject)
			i++
		case i == len(stored) || stored[i].seq > m.msgs[j].seq:
			fmt.Fprintf(&b, "%d %s is missing; ", m.msgs[j].seq, m.msgs[j].subject)
			j++
		default:
			if g, w := stored[i], m.msgs[j]; g.subject != w.subject || g.data != w.data || g.id != w.id {
				fmt.Fprintf(&b, "%d is %s %s %.40q, want %s %s %.40q; ", g.seq, g.subject, g.id, g.data, w.subject, w.id, w.data)
			}
			i++
			j++
		}
	}
	return b.String()
}
