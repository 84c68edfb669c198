package part_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// model is a section as a plain slice.
type model struct {
	recs []part.Record
	dead map[uint32]bool
}

func (m *model) live(ord int, fs []part.Filter) bool {
	return !m.dead[uint32(ord)] && (len(fs) == 0 ||
		slices.ContainsFunc(fs, func(f part.Filter) bool { return f.Match(m.recs[ord].Key) }))
}

func (m *model) state(key []byte) (ks part.KeyState) {
	for i, r := range m.recs {
		if bytes.Equal(r.Key, key) && !m.dead[uint32(i)] {
			if ks.Count++; ks.Count == 1 {
				ks.First = r.Seq
			}
			ks.Last = r.Seq
		}
	}
	return ks
}

var drawKey = rapid.Custom(func(t *rapid.T) []byte {
	k := fmt.Appendf(nil, "%s.%d", rapid.SampledFrom([]string{"a", "a.b", "b", "\xff\xff", "long.common.prefix"}).Draw(t, "head"),
		rapid.IntRange(0, 400).Draw(t, "tail"))
	return k[:rapid.SampledFrom([]int{len(k), len(k), len(k), 1, 0}).Draw(t, "cut")]
})

var drawFilter = rapid.Custom(func(t *rapid.T) part.Filter {
	return rapid.SampledFrom([]part.Filter{
		wild("a.>"), wild("a.*"), wild("*.7"), wild("*.*.7"), wild("a.b.*"), wild("long.*.prefix.>"), wild(">"), wild("none.>"),
		wild("a.1"), wild("b.3"), wild("b"), wild(""), wild("zzz"), whole("a"), whole("a.b.1"), whole("\xff"), whole("\xff\xff"),
		whole(""), whole("x"),
	}).Draw(t, "filter")
})

func drawRecords(t *rapid.T, least int, seq uint64) []part.Record {
	// mostly small, now and then more than a page of columns
	n := rapid.SampledFrom([]int{1, 2, 20, 300, 300, 4096, 5000}).Draw(t, "n")
	n = max(n, least)
	keys := rapid.SliceOfN(drawKey, 1, 60).Draw(t, "keys")
	if rapid.Bool().Draw(t, "many keys") {
		for i := range n {
			keys = append(keys, fmt.Appendf(nil, "many.%d.%d", i%7, i))
		}
	}
	gap := rapid.SampledFrom([]uint64{0, 0, 1, 1 << 40}).Draw(t, "gap")
	seed := rapid.Uint64().Draw(t, "seed")
	recs := make([]part.Record, n)
	at := int64(-5)
	for i := range recs {
		seed = seed*6364136223846793005 + 1442695040888963407
		r := seed >> 33
		seq++
		if gap > 0 && r%9 == 0 {
			seq += r % gap
		}
		at += int64(r % 3)
		recs[i] = part.Record{Seq: seq, Time: at, Key: keys[r%uint64(len(keys))], Data: bytes.Repeat([]byte{byte(r)}, int(r%50))}
	}
	return recs
}

func (m *model) kill(t *rapid.T) *part.Tombstones {
	m.dead = map[uint32]bool{}
	dead := &part.Tombstones{}
	n := uint32(len(m.recs))
	switch rapid.SampledFrom([]string{"none", "few", "few", "range", "all"}).Draw(t, "dead") {
	case "few":
		for _, ord := range rapid.SliceOfN(rapid.Uint32Range(0, n-1), 0, 50).Draw(t, "ords") {
			if dead.Add(ord) == m.dead[ord] {
				t.Fatalf("Add(%d) is wrong about what was there", ord)
			}
			m.dead[ord] = true
		}
	case "range":
		lo := rapid.Uint32Range(0, n-1).Draw(t, "lo")
		hi := rapid.Uint32Range(lo, n).Draw(t, "hi")
		dead.AddRange(lo, hi)
		for ; lo < hi; lo++ {
			m.dead[lo] = true
		}
	case "all":
		dead.AddRange(0, n)
		for i := range n {
			m.dead[i] = true
		}
	}
	b, err := dead.Encode()
	check2(t, err)
	back, err := part.DecodeTombstones("x", b, n)
	check2(t, err)
	if back.Count() != uint64(len(m.dead)) {
		t.Fatalf("tombstones come back with %d, want %d", back.Count(), len(m.dead))
	}
	return back
}

func check2(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Queries agree with a plain walk over a slice, with deletions, filters and any mixture of them.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		m := model{recs: drawRecords(t, 1, rapid.SampledFrom([]uint64{0, 1000}).Draw(t, "start"))}
		o := part.Options{
			BlockSize: rapid.SampledFrom([]int{64, 1000, 0}).Draw(t, "block"),
			Codec:     rapid.SampledFrom([]part.Codec{part.None, part.S2, part.Zstd}).Draw(t, "codec"),
		}
		path := buildRapid(t, mem, o, m.recs)
		r, err := part.Open(mem, path, part.ReadOptions{
			Cache: part.NewCache(rapid.SampledFrom([]int64{4000, 8 << 20}).Draw(t, "cache")), Verify: true,
		})
		check2(t, err)
		defer r.Close()
		s, err := r.Section(1)
		check2(t, err)
		m.checkSection(t, s, m.kill(t))
	})
}

func buildRapid(t *rapid.T, mem *vfs.Mem, o part.Options, recs []part.Record) string {
	check2(t, vfs.MakeDir(mem, "/d"))
	b, err := part.Create(mem, "/d", o)
	check2(t, err)
	check2(t, b.BeginLog(1, func(k, h, d int) uint64 { return uint64(k + h + 2*d) }))
	for i := range recs {
		check2(t, b.Add(&recs[i]))
	}
	info, err := b.Finish()
	check2(t, err)
	check2(t, b.Commit(part.Name(1, info.ID)))
	return "/d/" + part.Name(1, info.ID)
}

func (m *model) checkSection(t *rapid.T, s *part.Section, dead *part.Tombstones) {
	if len(m.dead) == 0 && rapid.Bool().Draw(t, "nil tombstones") {
		dead = nil
	}
	m.checkPlaces(t, s, dead)
	for range 4 {
		fs := rapid.SliceOfN(drawFilter, 0, 3).Draw(t, "filters")
		match, err := s.Match(fs...)
		check2(t, err)
		if len(fs) == 0 && rapid.Bool().Draw(t, "nil match") {
			match = nil
		}
		m.checkMatch(t, s, fs, match, dead)
		m.checkKeys(t, s, fs, match, dead)
	}
	for range 5 {
		key := rapid.OneOf(drawKey, rapid.Map(rapid.IntRange(0, len(m.recs)-1), func(i int) []byte { return m.recs[i].Key })).Draw(t, "key")
		m.checkKey(t, s, key, dead)
	}
}

func (m *model) checkPlaces(t *rapid.T, s *part.Section, dead *part.Tombstones) {
	n := len(m.recs)
	for range 8 {
		seq := m.recs[rapid.IntRange(0, n-1).Draw(t, "at")].Seq + rapid.SampledFrom([]uint64{0, 1, ^uint64(0)}).Draw(t, "off")
		want, found := slices.BinarySearchFunc(m.recs, seq, func(r part.Record, s uint64) int { return cmp(r.Seq, s) })
		ord, err := s.Lower(seq)
		if err != nil || int(ord) != want {
			t.Fatalf("Lower(%d) = %d, %v, want %d", seq, ord, err, want)
		}
		got, ok, err := s.Get(seq, dead)
		if err != nil || ok != (found && !m.dead[uint32(want)]) || ok && !same(&got, &m.recs[want]) {
			t.Fatalf("Get(%d) = %+v, %v, %v", seq, got, ok, err)
		}
	}
	for range 4 {
		i := rapid.IntRange(0, n-1).Draw(t, "ord")
		r := m.recs[i]
		seq, err := s.Seq(uint32(i))
		check2(t, err)
		size, err := s.Size(uint32(i))
		check2(t, err)
		if seq != r.Seq || size != uint64(len(r.Key)+2*len(r.Data)) {
			t.Fatalf("record %d: sequence %d, size %d", i, seq, size)
		}
		at := r.Time + rapid.Int64Range(-2, 2).Draw(t, "dt")
		want := slices.IndexFunc(m.recs, func(r part.Record) bool { return r.Time >= at })
		if want < 0 {
			want = n
		}
		ord, err := s.AtTime(at)
		if err != nil || int(ord) != want {
			t.Fatalf("AtTime(%d) = %d, %v, want %d", at, ord, err, want)
		}
	}
}

func cmp(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (m *model) checkMatch(t *rapid.T, s *part.Section, fs []part.Filter, match *part.Match, dead *part.Tombstones) {
	for range 4 {
		from := rapid.IntRange(0, len(m.recs)).Draw(t, "from")
		next, prev, count := -1, -1, uint64(0)
		for i := range m.recs {
			if !m.live(i, fs) {
				continue
			}
			if i < from {
				prev = i
				continue
			}
			if count++; next < 0 {
				next = i
			}
		}
		n, err := s.Count(uint32(from), match, dead)
		if err != nil || n != count {
			t.Fatalf("%v: Count(%d) = %d, %v, want %d", fs, from, n, err, count)
		}
		ord, ok, err := s.Next(uint32(from), match, dead)
		if err != nil || ok != (next >= 0) || ok && int(ord) != next {
			t.Fatalf("%v: Next(%d) = %d, %v, %v, want %d", fs, from, ord, ok, err, next)
		}
		ord, ok, err = s.Prev(uint32(from), match, dead)
		if err != nil || ok != (prev >= 0) || ok && int(ord) != prev {
			t.Fatalf("%v: Prev(%d) = %d, %v, %v, want %d", fs, from, ord, ok, err, prev)
		}
	}
}

func (m *model) checkKeys(t *rapid.T, s *part.Section, fs []part.Filter, match *part.Match, dead *part.Tombstones) {
	upTo := m.recs[rapid.IntRange(0, len(m.recs)-1).Draw(t, "up to")].Seq
	states, last := map[string]part.KeyState{}, map[string]uint32{}
	for i, r := range m.recs {
		if !m.live(i, fs) {
			continue
		}
		ks := states[string(r.Key)]
		if ks.Count++; ks.Count == 1 {
			ks.First = r.Seq
		}
		ks.Last = r.Seq
		states[string(r.Key)] = ks
		if r.Seq <= upTo {
			last[string(r.Key)] = uint32(i)
		}
	}
	var before []byte
	stop := rapid.SampledFrom([]int{1, 1 << 30}).Draw(t, "stop")
	want, seen := min(stop, len(states)), 0
	check2(t, s.EachKey(match, dead, func(key []byte, ks part.KeyState) bool {
		if ks != states[string(key)] || seen > 0 && bytes.Compare(before, key) >= 0 {
			t.Fatalf("EachKey(%q) = %+v, want %+v", key, ks, states[string(key)])
		}
		before = append(before[:0], key...)
		seen++
		return seen < stop
	}))
	if seen != want {
		t.Fatalf("EachKey yields %d keys, want %d", seen, want)
	}
	n := 0
	check2(t, s.LastPerKey(match, upTo, dead, func(id, ord uint32) bool {
		key, err := s.Key(id)
		check2(t, err)
		if last[string(key)] != ord {
			t.Fatalf("LastPerKey(%q) = %d, want %d", key, ord, last[string(key)])
		}
		if got, err := s.KeyID(ord); err != nil || got != id {
			t.Fatalf("KeyID(%d) = %d, %v", ord, got, err)
		}
		n++
		return true
	}))
	if n != len(last) {
		t.Fatalf("LastPerKey yields %d keys, want %d", n, len(last))
	}
}

func (m *model) checkKey(t *rapid.T, s *part.Section, key []byte, dead *part.Tombstones) {
	if ks, err := s.State(key, dead); err != nil || ks != m.state(key) {
		t.Fatalf("State(%q) = %+v, %v, want %+v", key, ks, err, m.state(key))
	}
	at := rapid.IntRange(0, len(m.recs)-1).Draw(t, "place")
	last, count := -1, uint64(0)
	for i, r := range m.recs {
		if bytes.Equal(r.Key, key) && !m.dead[uint32(i)] {
			if i >= at {
				count++
			}
			if i <= at {
				last = i
			}
		}
	}
	ord, ok, err := s.LastOf(key, m.recs[at].Seq, dead)
	if err != nil || ok != (last >= 0) || ok && int(ord) != last {
		t.Fatalf("LastOf(%q, %d) = %d, %v, %v, want %d", key, m.recs[at].Seq, ord, ok, err, last)
	}
	if n, err := s.CountOf(key, uint32(at), dead); err != nil || n != count {
		t.Fatalf("CountOf(%q, %d) = %d, %v, want %d", key, at, n, err, count)
	}
}

// What a merge makes of several parts with deletions is what was left of them, sizes included.
func TestMergeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		var want model
		var inputs []part.Input
		var dropped, bytesLeft uint64
		seq := uint64(0)
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			m := model{recs: drawRecords(t, 1, seq)}
			for i := range m.recs { // times of parts follow each other too
				m.recs[i].Time = int64(m.recs[i].Seq)
			}
			seq = m.recs[len(m.recs)-1].Seq
			r, err := part.Open(mem, buildRapid(t, mem, part.Options{BlockSize: 500}, m.recs), part.ReadOptions{})
			check2(t, err)
			defer r.Close()
			dead := m.kill(t)
			dropped += dead.Count()
			inputs = append(inputs, part.Input{Reader: r, Dead: map[uint64]*part.Tombstones{1: dead}})
			for i, r := range m.recs {
				if !m.dead[uint32(i)] {
					want.recs = append(want.recs, r)
					bytesLeft += uint64(len(r.Key) + 2*len(r.Data))
				}
			}
		}
		inputs = rapid.Permutation(inputs).Draw(t, "order")
		b, err := part.Create(mem, "/d", part.Options{Codec: part.S2})
		check2(t, err)
		st, err := part.Merge(b, inputs, part.MergeOptions{})
		check2(t, err)
		info, err := b.Finish()
		check2(t, err)
		n := uint64(len(want.recs))
		if st.Records != n || st.Dropped != dropped || info.Records != n || info.Bytes != bytesLeft {
			t.Fatalf("merged %+v, %+v; want %d records, %d bytes, %d dropped", st, info, n, bytesLeft, dropped)
		}
		r, err := part.Open(mem, b.Path(), part.ReadOptions{Verify: true})
		check2(t, err)
		defer r.Close()
		s, err := r.Section(1)
		check2(t, err)
		if n == 0 {
			if s != nil {
				t.Fatal("a section of nothing")
			}
			return
		}
		want.checkSection(t, s, want.kill(t))
	})
}
