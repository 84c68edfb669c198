package top

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The heavy are found among very many light ones, and the light are not taken for heavy.
func TestHeavyAmongMany(t *testing.T) {
	s := New(100)
	r := rand.New(rand.NewPCG(1, 2))
	truth := map[string]uint64{}
	for i := range 200_000 {
		key := fmt.Sprint("light.", i)
		if n := r.IntN(20); n < 5 {
			key = fmt.Sprint("heavy.", n)
		}
		truth[key]++
		s.Add([]byte(key), 1)
	}
	got := s.Top(10)
	if len(got) != 5 {
		t.Errorf("got %v", got)
	}
	for _, item := range got {
		if want := truth[item.Key]; item.Weight < want || item.Weight > want+200_000/100 {
			t.Errorf("%s: %d, want %d", item.Key, item.Weight, want)
		}
	}
	if n := len(s.All()); n != 100 {
		t.Errorf("%d keys are counted", n)
	}
	if testing.AllocsPerRun(1000, func() { s.Add([]byte("heavy.1"), 1) }) != 0 {
		t.Error("a known key allocates")
	}
}

// What the algorithm promises, for any stream: no count is too small, nor too large by more than its inheritance; every
// key heavier than total/size is there; a count never goes down.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		s := New(size)
		truth, shown := map[string]uint64{}, map[string]uint64{}
		var total uint64
		for _, k := range rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "keys") {
			key, weight := fmt.Sprint(k), uint64(k%3+1)
			s.Add([]byte(key), weight)
			truth[key] += weight
			total += weight
			for _, i := range s.All() {
				if i.Weight < shown[i.Key] {
					t.Fatalf("%s went from %d to %d", i.Key, shown[i.Key], i.Weight)
				}
				shown[i.Key] = i.Weight
			}
		}
		for key, c := range s.counts {
			if c.weight < truth[key] || c.weight-c.inherited > truth[key] {
				t.Fatalf("%s: %+v, want %d", key, c, truth[key])
			}
		}
		for key, n := range truth {
			if n > total/uint64(size) && s.counts[key] == nil {
				t.Fatalf("%s with %d of %d is missed", key, n, total)
			}
		}
		if len(s.counts) > size {
			t.Fatalf("%d keys", len(s.counts))
		}
	})
}

func TestHeaviest(t *testing.T) {
	items := []Item{{"a", 1}, {"c", 2}, {"b", 2}}
	if got := fmt.Sprint(Heaviest(items, 2)); got != "[{b 2} {c 2}]" {
		t.Error(got)
	}
	if got := Heaviest(items, 9); len(got) != 3 {
		t.Error(got)
	}
	if got := Heaviest(nil, -1); len(got) != 0 {
		t.Error(got)
	}
}
