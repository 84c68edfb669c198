package parity

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Control is what became of one control. The names of its JSON fields are those of the source system.
type Control struct {
	Name     string `json:"control"`
	Expected bool   `json:"expected"` // the comparator said what it had to say
	Detail   string `json:"detail"`
	Want     string `json:"want"`
	Got      string `json:"got"`
}

// SelfTest is the outcome of all controls.
type SelfTest struct {
	OK       bool      `json:"controls_ok"`
	OKTicks  int       `json:"ok_ticks"` // how many times in a row all were as expected
	At       time.Time `json:"at"`
	Controls []Control `json:"controls"`
}

// control is a fault that the comparator has to see: one state more than in the fixture without it.
type control struct {
	name    string
	newest  time.Duration // age of the newest record
	inject  func(f *fixture)
	want    map[State]uint64 // of fixtureSize sequences; the rest has to match
	unacked uint64
}

// old is out of the window, young in it.
const (
	old   = 30 * time.Second
	young = time.Second
)

// controls are run each time. lag_within_window and lag_beyond_window are one fault, of which only the age differs: a
// comparator that forgives everything passes the first, one that forgives nothing the second.
func controls() []control {
	return []control{
		{name: "identical", newest: old, inject: func(*fixture) {}},
		{
			name: "missing", newest: old, want: map[State]uint64{Missing: 1},
			inject: func(f *fixture) { f.copy.drop(4) },
		},
		{
			name: "payload", newest: old, want: map[State]uint64{Mismatch: 1},
			inject: func(f *fixture) { f.copy.at(4).Data[3] ^= 1 },
		},
		{
			name: "header", newest: old, want: map[State]uint64{Mismatch: 1},
			inject: func(f *fixture) {
				f.copy.at(4).Header = []byte("NATS/1.0\r\nkind: control\r\nNats-Msg-Id: 4\r\n\r\n")
			},
		},
		{
			name: "subject", newest: old, want: map[State]uint64{Mismatch: 1},
			inject: func(f *fixture) { f.copy.at(4).Subject[0] ^= 1 },
		},
		{
			name: "time", newest: old, want: map[State]uint64{Mismatch: 1},
			inject: func(f *fixture) { f.copy.at(4).Time++ },
		},
		{name: "reordered", newest: old, want: map[State]uint64{Reordered: 2}, inject: func(f *fixture) {
			a, b := f.copy.at(4), f.copy.at(5)
			a.Subject, b.Subject = b.Subject, a.Subject
			a.Header, b.Header = b.Header, a.Header
			a.Data, b.Data = b.Data, a.Data
		}},
		{name: "duplicate", newest: old, want: map[State]uint64{Duplicate: 1}, inject: func(f *fixture) {
			r := cloneRecord(f.copy.at(4))
			r.Seq = fixtureSize + 1
			f.copy.records, f.copy.last = append(f.copy.records, r), r.Seq
		}},
		{name: "extra", newest: old, want: map[State]uint64{Extra: 1}, inject: func(f *fixture) {
			r := cloneRecord(f.copy.at(4))
			r.Seq, r.Data = fixtureSize+1, []byte("never published")
			f.copy.records, f.copy.last = append(f.copy.records, r), r.Seq
		}},
		{
			name: "unreadable", newest: old, want: map[State]uint64{NotComparable: 1},
			inject: func(f *fixture) { f.copy.bad = map[uint64]bool{4: true} },
		},
		{name: "lost_by_nats", newest: old, want: map[State]uint64{LostByNATS: 1}, inject: func(f *fixture) {
			f.authority.drop(4)
			f.copy.drop(4)
		}},
		{
			name: "unacknowledged", newest: old, unacked: 1,
			inject: func(f *fixture) { f.ledger.entries = append(f.ledger.entries[:3:3], f.ledger.entries[4:]...) },
		},
		{name: "lag_within_window", newest: young, want: map[State]uint64{Pending: 1}, inject: late},
		{name: "lag_beyond_window", newest: old, want: map[State]uint64{Missing: 1}, inject: late},
	}
}

// late lets the copy be one record behind.
func late(f *fixture) {
	f.copy.drop(fixtureSize)
	f.copy.last = fixtureSize - 1
}

// comparator is Compare, or what a test puts in its place.
type comparator func(ctx context.Context, p *Pair, g *Progress, budget int) (more bool, err error)

// Controls runs the controls.
func Controls(ctx context.Context, now time.Time) SelfTest { return runControls(ctx, Compare, now) }

func runControls(ctx context.Context, compare comparator, now time.Time) SelfTest {
	out := SelfTest{OK: true, At: now}
	add := func(c Control) {
		out.OK = out.OK && c.Expected
		out.Controls = append(out.Controls, c)
	}
	for _, c := range controls() {
		add(c.run(ctx, compare, now))
	}
	add(strandedControl())
	return out
}

func (c *control) run(ctx context.Context, compare comparator, now time.Time) Control {
	f, g := newFixture(now, c.newest), &Progress{}
	c.inject(f)
	out := Control{Name: c.name, Want: c.text()}
	if _, err := compare(ctx, f.pair(), g, 0); err != nil {
		out.Got, out.Detail = "error", "the comparator failed: "+err.Error()
		return out
	}
	n := g.Counts()
	got := control{want: map[State]uint64{}, unacked: g.unacked}
	for s, v := range n.By {
		if State(s) != Match && v > 0 {
			got.want[State(s)] = v
		}
	}
	out.Got = got.text()
	examined := uint64(fixtureSize)
	if c.want[Duplicate]+c.want[Extra] > 0 {
		examined++
	}
	a, b := g.leaves.digests()
	var differs bool
	for s := range c.want {
		differs = differs || s.Diverged() && s != LostByNATS && g.tail.by[s] == 0
	}
	switch {
	case out.Got != out.Want:
		out.Detail = fmt.Sprintf("NOT DETECTED: wanted %s, and the comparator said %s", out.Want, out.Got)
	case !n.Accounted() || n.Examined != examined:
		out.Detail = fmt.Sprintf("%d sequences were there, %d examined, and the states add up to %d", examined,
			n.Examined, n.Sum())
	case (a != b) != differs:
		out.Detail = fmt.Sprintf("the digests are equal: %v, which is wrong", a == b)
	default:
		out.Expected, out.Detail = true, fmt.Sprintf("%s of %d examined", out.Got, n.Examined)
	}
	return out
}

// text names what is not a match.
func (c *control) text() string {
	var parts []string
	for _, s := range States() {
		if n := c.want[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", s, n))
		}
	}
	if c.unacked > 0 {
		parts = append(parts, fmt.Sprintf("unacknowledged %d", c.unacked))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
