package storage

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

// TestKeyTable compares the table with a map through many keys that come and go.
func TestKeyTable(t *testing.T) {
	for _, most := range []int{3, 40, 3000} {
		kt := keyTable{seed: maphash.MakeSeed()}
		want := map[string]uint32{}
		var sel bitset // ids of keys with an even number, kept up to date as a cursor does
		learned := uint64(0)
		rnd := rand.New(rand.NewPCG(1, uint64(most)))
		even := func(id uint32) {
			if sel.remove(id); kt.info(id).chained > 0 && (kt.key(id)[0]-'0')%2 == 0 {
				sel.add(id)
			}
		}
		for i := range 60_000 {
			n := rnd.IntN(2 * most)
			key := fmt.Sprintf("%d.some.longer.key.%d", n%10, n)
			id, there := want[key]
			switch {
			case there && len(want) > most/2 && rnd.IntN(2) == 0:
				kt.info(id).chained = 0
				kt.remove(id)
				delete(want, key)
			default:
				got := kt.add([]byte(key))
				if there && got != id {
					t.Fatalf("%s: id %d, it was %d", key, got, id)
				}
				want[key] = got
				kt.info(got).chained = 1
			}
			if i%61 == 0 {
				if !kt.given(learned, even) {
					sel = nil
					kt.each(func(id uint32) bool { even(id); return true })
				}
				learned = kt.assigned
			}
			if i%5000 == 0 || i < 200 {
				checkKeyTable(t, &kt, want)
			}
		}
		checkKeyTable(t, &kt, want)
		if !kt.given(learned, even) {
			t.Fatal("the ring forgot 61 assignments")
		}
		for key, id := range want {
			if got, want := sel.has(id), (key[0]-'0')%2 == 0; got != want {
				t.Fatalf("%s is selected: %v", key, got)
			}
		}
		if kt.waste > 4*arenaPage+2*kt.stored+100 || int(kt.ids) > 2*most {
			t.Fatalf("%d bytes of the arena are wasted, %d ids for %d keys", kt.waste, kt.ids, len(want))
		}
	}
}

func checkKeyTable(t *testing.T, kt *keyTable, want map[string]uint32) {
	t.Helper()
	if kt.used != len(want) {
		t.Fatalf("%d keys, want %d", kt.used, len(want))
	}
	for key, id := range want {
		if got := kt.find([]byte(key)); got != id || string(kt.key(id)) != key {
			t.Fatalf("%s: id %d, want %d, which is %q", key, got, id, kt.key(id))
		}
	}
	n := 0
	kt.each(func(id uint32) bool {
		if want[string(kt.key(id))] != id {
			t.Fatalf("%q should not be there", kt.key(id))
		}
		n++
		return true
	})
	if n != len(want) {
		t.Fatalf("walked %d keys of %d", n, len(want))
	}
	if got := kt.find([]byte("not there")); got != noKey {
		t.Fatalf("found what is not there: %d", got)
	}
}
