package reverse

import (
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// Straddle is what clients hold of a consumer when the servers get the say: messages that were delivered here, under
// consumer sequences that the servers have never given. They ignore NAKs of sequences beyond theirs, and acks of all up
// to a message count by them.
type Straddle struct {
	Consumer  string
	All       bool     // an ack is about all up to its message
	Pending   []uint64 // stream sequences, ascending
	Delivered uint64   // here, likewise
	Floor     uint64   // consumer sequence upstream up to which all is done
	Last      uint64   // that of the last delivery upstream
}

// Sequence is the consumer sequence under which an ack of a message counts upstream.
func (s *Straddle) Sequence(seq uint64) uint64 {
	if !s.All {
		return s.Last
	}
	// Ascending with the messages, so that each counts behind one for those before it, and below those to come.
	at, found := slices.BinarySearch(s.Pending, seq)
	if found {
		at++
	}
	return min(s.Floor+uint64(max(at, 1)), max(s.Last, s.Floor+1)) //nolint:gosec // not negative
}

// Straddling returns what clients hold. Both sides have to stand still.
func (g *Ghosts) Straddling(ctx context.Context) (list []Straddle, err error) {
	copies, there, err := g.both(ctx)
	if err != nil {
		return nil, err
	}
	for i := range copies {
		c := &copies[i]
		info := there[c.Name]
		if info == nil || len(c.State.Pending) == 0 || c.Config.AckPolicy == server.AckNone {
			continue
		}
		list = append(list, Straddle{
			Consumer: c.Name, All: c.Config.AckPolicy == server.AckAll,
			Pending:   slices.Sorted(maps.Keys(c.State.Pending)),
			Delivered: c.State.Delivered.Stream, Floor: info.AckFloor.Consumer, Last: info.Delivered.Consumer,
		})
	}
	return list, nil
}
