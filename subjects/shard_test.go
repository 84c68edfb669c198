package subjects_test

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/subjects"
)

// refXXH64 is XXH64 with seed 0 of 8 bytes, as its specification gives it for one lane.
func refXXH64(b [8]byte) uint64 {
	const (
		p1 = 11400714785074694791
		p2 = 14029467366897019727
		p3 = 1609587929392839161
		p4 = 9650029242287828579
		p5 = 2870177450012600261
	)
	h := uint64(p5) + 8
	lane := binary.LittleEndian.Uint64(b[:]) * p2
	h ^= bits.RotateLeft64(lane, 31) * p1
	h = bits.RotateLeft64(h, 27)*p1 + p4
	h ^= h >> 33
	h *= p2
	h ^= h >> 29
	h *= p3
	h ^= h >> 32
	return h
}

func refShardHash(token string) (hash uint64, numeric bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(token), 10, 64)
	if err != nil {
		return 0, false
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	return refXXH64(b), true
}

func TestShardHash(t *testing.T) {
	// Values published with the algorithm, for text.
	for text, want := range map[string]uint64{
		"": 0xEF46DB3751D8E999, "a": 0xD24EC4F1A98C6E5B, "abc": 0x44BC2CF5AD770999, " abc\t": 0x44BC2CF5AD770999,
	} {
		if got := subjects.ShardHash(text); got != want {
			t.Errorf("ShardHash(%q) = %x, want %x", text, got, want)
		}
	}
	for _, text := range []string{
		"0", "-0", "+5", " 42 ", "320816801799737344", "9223372036854775807", "-9223372036854775808", "007",
	} {
		want, ok := refShardHash(text)
		if got := subjects.ShardHash([]byte(text)); !ok || got != want {
			t.Errorf("ShardHash(%q) = %x, want %x", text, got, want)
		}
	}
	if subjects.ShardOf("x", 0) != 0 || subjects.ShardOf("x", 1) != 0 {
		t.Error("one shard or none is not shard 0")
	}
	if got := subjects.ShardOf("abc", 8); got != 0x44BC2CF5AD770999%8 {
		t.Errorf("ShardOf(abc, 8) = %d", got)
	}
}

func FuzzShardHash(f *testing.F) {
	for _, s := range []string{"1", "-1", "9223372036854775808", "-9223372036854775809", "+", "-", "1_0", "0x1", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		got := subjects.ShardHash(token)
		if want, numeric := refShardHash(token); numeric && got != want {
			t.Fatalf("ShardHash(%q) = %x, want %x", token, got, want)
		} else if !numeric && got != subjects.ShardHash(strings.TrimSpace(token)) {
			t.Fatalf("ShardHash(%q) is not that of the trimmed text", token)
		}
	})
}

func TestShardMapRules(t *testing.T) {
	m, err := subjects.NewShardMap(8, []subjects.ShardRule{
		{Filter: "audit.>", Shards: []int{7}},
		{Filter: "exec.*.*", Shards: []int{1, 2, 3}, Tokens: []int{3}},
		{Filter: "exec.>", Shards: []int{4, 5}, Tokens: []int{2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := "320816801799737344"
	hash, _ := refShardHash(id)
	for subject, want := range map[string]int{
		"audit.x.y":    7,
		"exec.a." + id: []int{1, 2, 3}[hash%3],
		"exec." + id:   []int{4, 5}[hash%2],
		"else":         m.Default("A", "S"),
		"audit":        m.Default("A", "S"),
	} {
		if got := m.Shard("A", "S", []byte(subject)); got != want {
			t.Errorf("Shard(%q) = %d, want %d", subject, got, want)
		}
	}
	for _, c := range []struct {
		filters []string
		want    []int
	}{
		{[]string{"audit.x", "audit.*"}, []int{7}},
		{[]string{"exec.*." + id}, []int{[]int{1, 2, 3}[hash%3]}},
		{[]string{"exec.*.*"}, []int{1, 2, 3}},
		{[]string{"exec." + id + ".a.>"}, []int{[]int{4, 5}[hash%2]}},
		{[]string{"else.>"}, []int{m.Default("A", "S")}},
	} {
		if got := m.Reach("A", "S", c.filters); !slices.Equal(got, c.want) {
			t.Errorf("Reach(%q) = %v, want %v", c.filters, got, c.want)
		}
	}
}

func TestShardMapErrors(t *testing.T) {
	fixed := subjects.ShardRule{Filter: "a.>", Shards: []int{0}}
	for _, c := range []struct {
		shards int
		rules  []subjects.ShardRule
		want   string
	}{
		{0, nil, "at least 1"},
		{2, []subjects.ShardRule{{Filter: "a..b", Shards: []int{0}}}, `1 ("a..b"): invalid subject filter`},
		{2, []subjects.ShardRule{{Filter: "a"}}, "names no shard"},
		{2, []subjects.ShardRule{{Filter: "a", Shards: []int{2}}}, "no shard 2: shards are numbered from 0 to 1"},
		{2, []subjects.ShardRule{{Filter: "a", Shards: []int{-1}}}, "no shard -1"},
		{2, []subjects.ShardRule{{Filter: "a", Shards: []int{1, 1}}}, "shard 1 twice"},
		{2, []subjects.ShardRule{{Filter: "a.*", Shards: []int{0, 1}}}, "no token to choose by"},
		{2, []subjects.ShardRule{{Filter: "a.*", Shards: []int{0, 1}, Tokens: []int{3}}}, "token 3"},
		{2, []subjects.ShardRule{{Filter: "a.>", Shards: []int{0, 1}, Tokens: []int{0}}}, "token 0"},
		{2, []subjects.ShardRule{{Filter: "a.>", Shards: []int{0, 1}, Tokens: []int{2, 2}}}, "token 2 twice"},
		{2, []subjects.ShardRule{fixed, {Filter: "a.*", Shards: []int{1}}}, `2 ("a.*"): it can never apply: rule 1 ("a.>")`},
	} {
		_, err := subjects.NewShardMap(c.shards, c.rules)
		if !errors.Is(err, subjects.ErrShardRule) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.rules, err, c.want)
		}
	}
}

// genRules makes rules that are valid in themselves; those that an earlier one hides are left out.
func genRules(shards int) *rapid.Generator[[]subjects.ShardRule] {
	return rapid.Custom(func(t *rapid.T) []subjects.ShardRule {
		var rules []subjects.ShardRule
	next:
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			filter := genFilter().Draw(t, "filter")
			for _, r := range rules {
				if subjects.SubsetOf(filter, r.Filter) {
					continue next
				}
			}
			n := subjects.NumTokens(filter)
			rules = append(rules, subjects.ShardRule{
				Filter: filter,
				Shards: rapid.SliceOfNDistinct(rapid.IntRange(0, shards-1), 1, 3, rapid.ID[int]).Draw(t, "shards"),
				Tokens: rapid.SliceOfNDistinct(rapid.IntRange(1, n), 1, n, rapid.ID[int]).Draw(t, "tokens"),
			})
		}
		return rules
	})
}

// TestShardMapAgainstReference: the first rule that matches decides, and Reach names every shard that a subject of the
// stream goes to.
func TestShardMapAgainstReference(t *testing.T) {
	all := universe(4)
	rapid.Check(t, func(t *rapid.T) {
		const shards = 5
		rules := genRules(shards).Draw(t, "rules")
		m, err := subjects.NewShardMap(shards, rules)
		if err != nil {
			t.Fatal(err)
		}
		filters := rapid.SliceOfN(genFilter(), 1, 2).Draw(t, "filters")
		reach := m.Reach("A", "S", filters)
		used := map[int]bool{}
		for _, s := range all {
			shard := m.Shard("A", "S", []byte(s))
			i := slices.IndexFunc(rules, func(r subjects.ShardRule) bool { return refMatch(r.Filter, s) })
			switch {
			case i < 0:
				if shard != m.Default("A", "S") {
					t.Fatalf("%q: shard %d is not the default", s, shard)
				}
			case !slices.Contains(rules[i].Shards, shard):
				t.Fatalf("%q: shard %d is not one of rule %d", s, shard, i+1)
			}
			if slices.ContainsFunc(filters, func(f string) bool { return refMatch(f, s) }) {
				used[shard] = true
				if !slices.Contains(reach, shard) {
					t.Fatalf("%q goes to shard %d, which is not in Reach(%q) = %v", s, shard, filters, reach)
				}
			}
		}
		if len(rules) == 1 && len(filters) == 1 && len(rules[0].Shards) == 1 && len(used) != len(reach) {
			t.Fatalf("Reach(%q) = %v, used are %v", filters, reach, used)
		}
	})
}

func TestShardMapSpreads(t *testing.T) {
	m, err := subjects.NewShardMap(8, []subjects.ShardRule{
		{Filter: "exec.*.*", Shards: []int{0, 1, 2, 3}, Tokens: []int{2, 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var byRule, byStream [8]int
	for i := range 4000 {
		n := strconv.Itoa(i)
		byRule[m.Shard("A", "S", []byte("exec.x."+n))]++
		byStream[m.Shard("A", "S"+n, []byte("y"))]++
	}
	for shard := range 8 {
		if n := byRule[shard]; (shard < 4) != (n > 800) || (shard >= 4) != (n == 0) {
			t.Errorf("by rule: %v", byRule)
		}
		if byStream[shard] < 400 {
			t.Errorf("by stream: %v", byStream)
		}
	}
	if a, b := m.Shard("A", "S", []byte("exec.1.2")), m.Shard("B", "T", []byte("exec.1.2")); a != b {
		t.Errorf("a rule gave %d and %d for one subject", a, b)
	}
}
