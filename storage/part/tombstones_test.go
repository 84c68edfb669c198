package part

import (
	"math/rand/v2"
	"testing"
)

// TestTombstonesModel deletes runs, single ordinals and patterns far beyond the size of one of the bitmap's containers and
// compares every question with an array of flags.
func TestTombstonesModel(t *testing.T) {
	const n = 3*65536 + 1000
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dead, gone := &Tombstones{}, make([]bool, n+1)
		for range 6 {
			lo := rnd.IntN(n)
			hi := min(lo+1+rnd.IntN(90_000), n)
			switch step := 1 + rnd.IntN(3); rnd.IntN(3) {
			case 0:
				dead.AddRange(uint32(lo), uint32(hi))
				for i := lo; i < hi; i++ {
					gone[i] = true
				}
			case 1:
				for i := lo; i < hi; i += step {
					dead.Add(uint32(i))
					gone[i] = true
				}
			default:
				for range 5000 {
					i := rnd.IntN(n)
					dead.Add(uint32(i))
					gone[i] = true
				}
			}
			if rnd.IntN(3) == 0 {
				b, err := dead.Encode()
				if err != nil {
					t.Fatal(err)
				}
				if dead, err = DecodeTombstones("test", b, n); err != nil {
					t.Fatal(err)
				}
			}
			compareTombstones(t, dead, gone)
		}
	}
}

// compareTombstones asks everything there is; the last flag is false.
func compareTombstones(t *testing.T, dead *Tombstones, gone []bool) {
	t.Helper()
	rank, live := make([]uint64, len(gone)), make([]uint32, len(gone))
	for i := range gone {
		if i > 0 {
			rank[i] = rank[i-1]
			if gone[i-1] {
				rank[i]++
			}
		}
	}
	for i := len(gone) - 1; i >= 0; i-- {
		if live[i] = uint32(i); gone[i] {
			live[i] = live[i+1]
		}
	}
	if got, want := dead.Count(), rank[len(gone)-1]; got != want {
		t.Fatalf("%d are deleted, want %d", got, want)
	}
	for i := 0; i < len(gone); i += 1 + rand.IntN(200) {
		ord := uint32(i)
		if dead.Contains(ord) != gone[i] || dead.Rank(ord) != rank[i] || dead.Live(ord) != live[i] {
			t.Fatalf("%d: deleted %v, %d before it, %d is next; want %v, %d, %d",
				ord, dead.Contains(ord), dead.Rank(ord), dead.Live(ord), gone[i], rank[i], live[i])
		}
	}
	from := rand.IntN(len(gone))
	next := from
	dead.Each(uint32(from), func(ord uint32) bool {
		for ; next < int(ord); next++ {
			if gone[next] {
				t.Fatalf("%d is left out", next)
			}
		}
		next++
		return gone[ord]
	})
	for ; next < len(gone); next++ {
		if gone[next] {
			t.Fatalf("%d is left out", next)
		}
	}
}
