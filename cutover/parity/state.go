package parity

import "fmt"

// State is what became of one sequence.
type State uint8

// States. The first five are no findings.
const (
	// Match: the authority and the copy have the same content, and the ledger does not contradict.
	Match State = iota
	// Pending: younger than the window, so not looked at yet.
	Pending
	// Suspended: the copy is not expected to have it yet (the stream is being filled).
	Suspended
	// Superseded: the authority has removed it by its rules (limits, acks, rollups, a purge), and the copy follows.
	Superseded
	// Ignored: listed as a known divergence.
	Ignored
	// NotComparable: one side has it and cannot give it.
	NotComparable
	// Mismatch: both have it, with different content or time.
	Mismatch
	// Missing: the authority has it, the copy has not.
	Missing
	// Extra: the copy has it, the authority has not and never had, or removed it too long ago.
	Extra
	// Reordered: the copy has the content of another sequence in its place.
	Reordered
	// Duplicate: the copy has the content of another sequence that it also has in the right place.
	Duplicate
	// LostByNATS: the servers acknowledged it and have not got it, and their rules do not say why.
	LostByNATS

	states
)

var stateNames = [states]string{
	"match", "pending", "suspended", "superseded", "ignored", "not_comparable", "mismatch", "missing", "extra",
	"reordered", "duplicate", "lost_by_nats",
}

// States returns all states, in order.
func States() []State {
	out := make([]State, states)
	for i := range out {
		out[i] = State(i)
	}
	return out
}

// String returns the state's name as metrics and JSON have it.
func (s State) String() string {
	if s >= states {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("no such state %q", b)
}

// Diverged tells the states that say that the sides differ.
func (s State) Diverged() bool { return s >= Mismatch && s < states }

// Finding tells the states that somebody should look at.
func (s State) Finding() bool { return s >= NotComparable && s < states }

// Kind names the divergence as the source system's metric does: missing_event, count or order, and content for the
// others.
func (s State) Kind() string {
	switch s { //nolint:exhaustive // the others are content
	case Missing, LostByNATS:
		return "missing_event"
	case Extra, Duplicate:
		return "count"
	case Reordered:
		return "order"
	default:
		return "content"
	}
}

// Counts says how many sequences are in which state.
type Counts struct {
	// Examined is counted where the sequences are met, not from the states.
	Examined uint64
	By       [states]uint64
}

// Sum adds up the states. It equals Examined, or the instrument is broken.
func (c *Counts) Sum() uint64 {
	var n uint64
	for _, v := range c.By {
		n += v
	}
	return n
}

// Accounted tells whether the states add up to what was examined.
func (c *Counts) Accounted() bool { return c.Sum() == c.Examined }

// Diverged is the number of sequences in a state that says the sides differ.
func (c *Counts) Diverged() uint64 {
	var n uint64
	for s, v := range c.By {
		if State(s).Diverged() {
			n += v
		}
	}
	return n
}

// Map returns the counts by name, with "examined".
func (c *Counts) Map() map[string]uint64 {
	m := map[string]uint64{"examined": c.Examined}
	for s, v := range c.By {
		m[State(s).String()] = v
	}
	return m
}

// move counts one sequence to another state.
func (c *Counts) move(from, to State) {
	c.By[from]--
	c.By[to]++
}
