package subjects_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/subjects"
)

type entry struct {
	filter string
	value  int
}

// indexModel is an Index beside the list of what must be in it.
type indexModel struct {
	index   subjects.Index[int]
	entries []entry
}

func (m *indexModel) insert(t *rapid.T) {
	e := entry{genFilter().Draw(t, "filter"), rapid.IntRange(0, 60).Draw(t, "value")}
	added, err := m.index.Insert(e.filter, e.value)
	if err != nil {
		t.Fatal(err)
	}
	if added == slices.Contains(m.entries, e) {
		t.Fatalf("Insert(%v) says added %v", e, added)
	}
	if added {
		m.entries = append(m.entries, e)
	}
}

// fill puts many values under one filter, past the size where a set changes its form.
func (m *indexModel) fill(t *rapid.T) {
	filter := genFilter().Draw(t, "filter")
	for v := range rapid.IntRange(20, 60).Draw(t, "n") {
		added, err := m.index.Insert(filter, v)
		if err != nil {
			t.Fatal(err)
		}
		if added {
			m.entries = append(m.entries, entry{filter, v})
		}
	}
}

// drain takes the oldest entries out.
func (m *indexModel) drain(t *rapid.T) {
	n := min(len(m.entries), rapid.IntRange(0, 60).Draw(t, "n"))
	for _, e := range m.entries[:n] {
		if !m.index.Remove(e.filter, e.value) {
			t.Fatalf("Remove(%v) = false", e)
		}
	}
	m.entries = slices.Delete(m.entries, 0, n)
}

func (m *indexModel) remove(t *rapid.T) {
	e := entry{genFilter().Draw(t, "filter"), rapid.IntRange(0, 60).Draw(t, "value")}
	if len(m.entries) > 0 && rapid.Bool().Draw(t, "present") {
		e = rapid.SampledFrom(m.entries).Draw(t, "entry")
	}
	i := slices.Index(m.entries, e)
	if got := m.index.Remove(e.filter, e.value); got != (i >= 0) {
		t.Fatalf("Remove(%v) = %v", e, got)
	}
	if i >= 0 {
		m.entries = slices.Delete(m.entries, i, i+1)
	}
}

// check compares every answer.
func (m *indexModel) check(t *rapid.T) {
	subject := rapid.OneOf(genSubject(), genText()).Draw(t, "subject")
	matching := m.where(func(f string) bool { return refMatch(f, subject) })
	var want []int
	for _, e := range matching {
		want = append(want, e.value)
	}
	slices.Sort(want)
	same(t, "AppendMatch", sorted(m.index.AppendMatch(nil, []byte(subject))), want)
	var got []int
	m.index.Match([]byte(subject), func(v int) bool { got = append(got, v); return true })
	same(t, "Match", sorted(got), want)
	equal(t, "CountMatch", m.index.CountMatch([]byte(subject)), len(want))
	equal(t, "HasMatch", m.index.HasMatch([]byte(subject)), len(want) > 0)

	filter := genFilter().Draw(t, "other")
	same(t, "Overlapping", collect(func(fn func(string, int) bool) { m.index.Overlapping(filter, fn) }),
		m.where(func(f string) bool { return subjects.Overlap(f, filter) }))
	same(t, "Covering", collect(func(fn func(string, int) bool) { m.index.Covering(filter, fn) }),
		m.where(func(f string) bool { return subjects.SubsetOf(filter, f) }))
	same(t, "Each", collect(m.index.Each), m.where(func(string) bool { return true }))

	filters := map[string]bool{}
	for _, e := range m.entries {
		filters[e.filter] = true
	}
	equal(t, "Len", m.index.Len(), len(m.entries))
	equal(t, "NumFilters", m.index.NumFilters(), len(filters))
}

// where returns the entries whose filter is wanted, sorted.
func (m *indexModel) where(wanted func(filter string) bool) []entry {
	var out []entry
	for _, e := range m.entries {
		if wanted(e.filter) {
			out = append(out, e)
		}
	}
	sortEntries(out)
	return out
}

func collect(each func(func(string, int) bool)) []entry {
	var out []entry
	each(func(f string, v int) bool { out = append(out, entry{f, v}); return true })
	sortEntries(out)
	return out
}

func sortEntries(e []entry) {
	slices.SortFunc(e, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.filter, b.filter), cmp.Compare(a.value, b.value))
	})
}

func sorted(v []int) []int {
	slices.Sort(v)
	return v
}

func equal[T comparable](t *rapid.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func same[T comparable](t *rapid.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m indexModel
		t.Repeat(map[string]func(*rapid.T){
			"insert": m.insert, "fill": m.fill, "remove": m.remove, "drain": m.drain, "": m.check,
		})
	})
}

func TestIndexStopsWhenToldTo(t *testing.T) {
	var x subjects.Index[int]
	for i, f := range []string{"a.b", "a.*", "a.>", "*.b", "*.*", ">", "a.b.c"} {
		if _, err := x.Insert(f, i); err != nil {
			t.Fatal(err)
		}
	}
	for what, walk := range map[string]func(func(string, int) bool){
		"Match":       func(fn func(string, int) bool) { x.Match([]byte("a.b"), func(v int) bool { return fn("", v) }) },
		"Overlapping": func(fn func(string, int) bool) { x.Overlapping("*.b", fn) },
		"Covering":    func(fn func(string, int) bool) { x.Covering("a.b", fn) },
		"Each":        x.Each,
	} {
		total := 0
		walk(func(string, int) bool { total++; return true })
		for stop := 1; stop <= total; stop++ {
			calls := 0
			walk(func(string, int) bool { calls++; return calls < stop })
			if calls != stop {
				t.Errorf("%s: told to stop after %d of %d calls, there were %d", what, stop, total, calls)
			}
		}
	}
}

func TestIndexRefusesWhatIsNoFilter(t *testing.T) {
	var x subjects.Index[int]
	if _, err := x.Insert("a..b", 1); err == nil {
		t.Error("no error")
	}
	if x.Remove("a..b", 1) || x.Len() != 0 {
		t.Error("something is there")
	}
}

func BenchmarkMatch(b *testing.B) {
	filter, err := subjects.Compile("orders.*.created.>")
	if err != nil {
		b.Fatal(err)
	}
	subject := []byte("orders.europe.created.customer-4711.0815")
	b.Run("Match", func(b *testing.B) {
		for b.Loop() {
			subjects.Match("orders.*.created.>", subject)
		}
	})
	b.Run("Filter", func(b *testing.B) {
		for b.Loop() {
			filter.Match(subject)
		}
	})
	b.Run("ValidFilter", func(b *testing.B) {
		for b.Loop() {
			subjects.ValidFilter(subject)
		}
	})
}
