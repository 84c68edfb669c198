package stream

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestScheduleTable runs random changes on the table and on a plain map.
func TestScheduleTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table schedules
		plain := map[string]schedule{}
		seq := uint64(0)
		subject := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "subject") }
		at := func() int64 { return int64(rapid.IntRange(1, 5).Draw(rt, "at")) }
		older := func() uint64 { return seq - uint64(rapid.IntRange(0, int(min(seq, 2))).Draw(rt, "back")) }
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(*rapid.T) {
				seq++
				s, n, when := subject(), older(), at()
				table.set([]byte(s), n, when)
				if old, ok := plain[s]; !ok || old.seq < n {
					plain[s] = schedule{seq: n, at: when, wake: when}
				}
			},
			"end": func(rt *rapid.T) {
				s, n := subject(), older()
				old, ok := plain[s]
				ends := ok && old.seq < n
				if ends {
					delete(plain, s)
				}
				if got := table.end([]byte(s), n); (got != nil) != ends {
					rt.Fatalf("end of %s at %d: %v, want %v", s, n, got, ends)
				}
			},
			"next": func(*rapid.T) {
				s, n, when := subject(), older(), at()
				table.next([]byte(s), n, when)
				if old, ok := plain[s]; ok && old.seq < n {
					plain[s] = schedule{seq: old.seq, at: when, wake: when}
				}
			},
			"postpone": func(*rapid.T) {
				if len(table.due) == 0 {
					return
				}
				e, when := table.due[0], at()
				table.postpone(e, e.wake+when)
				p := plain[e.subject]
				p.wake += when
				plain[e.subject] = p
			},
			"": func(rt *rapid.T) { checkTable(rt, &table, plain) },
		})
	})
}

func checkTable(rt *rapid.T, table *schedules, plain map[string]schedule) {
	if len(table.due) != len(plain) || len(table.bySubject) != len(plain) {
		rt.Fatalf("%d and %d entries, want %d", len(table.due), len(table.bySubject), len(plain))
	}
	for i, e := range table.due {
		p := plain[e.subject]
		if e.index != i || table.bySubject[e.subject] != e || p.seq != e.seq || p.at != e.at || p.wake != e.wake {
			rt.Fatalf("entry %d is %+v, want %+v", i, e, p)
		}
		if first := table.due[0]; table.due.Less(i, 0) {
			rt.Fatalf("%+v stands before %+v", first, e)
		}
	}
}

// TestScheduleTableForgets shows the bound: of schedules that left the stream otherwise, no more than there are others
// stay in the table.
func TestScheduleTableForgets(t *testing.T) {
	var table schedules
	alive := map[string]bool{}
	lives := func(e *schedule) bool { return alive[e.subject] }
	for i := range 20000 {
		subject := fmt.Sprint(i)
		alive[subject] = true
		if i >= 100 {
			delete(alive, fmt.Sprint(i-100)) // a hundred at a time
		}
		table.lookAtSome(lives)
		table.set([]byte(subject), uint64(i+1), int64(1e6-i))
		if len(table.due) > 300 {
			t.Fatalf("%d entries for %d schedules", len(table.due), len(alive))
		}
	}
}
