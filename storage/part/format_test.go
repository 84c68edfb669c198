package part_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// page reads a part as docs/format/part.md has it. It shares nothing with the package, so that the page, the writer and
// the reader cannot be wrong together.
type page struct {
	tb   testing.TB
	b    []byte
	aead cipher.AEAD
}

func u32(b []byte, at int) int    { return int(binary.LittleEndian.Uint32(b[at:])) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func castagnoli(seed uint32, b []byte) uint32 {
	return crc32.Update(seed, crc32.MakeTable(crc32.Castagnoli), b)
}

//nolint:revive // ok is what is checked, not a mode
func (p *page) must(ok bool, format string, args ...any) {
	p.tb.Helper()
	if !ok {
		p.tb.Fatalf(format, args...)
	}
}

func (p *page) unlock(secret string) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "ehdb part master key 1", 32)
	check(p.tb, err)
	id, err := hkdf.Key(sha256.New, []byte(secret), nil, "ehdb part master key id 1", 8)
	check(p.tb, err)
	p.must(bytes.Equal(id, p.b[48:56]), "key id")
	aead := func(key []byte) cipher.AEAD {
		if p.b[12] == 2 {
			a, err := chacha20poly1305.New(key)
			check(p.tb, err)
			return a
		}
		block, err := aes.NewCipher(key)
		check(p.tb, err)
		a, err := cipher.NewGCM(block)
		check(p.tb, err)
		return a
	}
	data, err := aead(key).Open(nil, p.b[56:68], p.b[68:116], p.b[16:32])
	check(p.tb, err)
	p.aead = aead(data)
}

// block returns the raw body of the block at off, its kind, log and number, and the offset behind it.
func (p *page) block(off int) (raw []byte, kind byte, log uint64, number, end int) {
	h := p.b[off : off+32]
	place := binary.LittleEndian.AppendUint64(bytes.Clone(p.b[16:32]), uint64(off))
	p.must(castagnoli(castagnoli(0, place), h[4:]) == uint32(u32(h, 0)), "block at %d: crc", off)
	end = off + 32 + u32(h, 4)
	body := p.b[off+32 : end]
	p.must(castagnoli(0, body) == uint32(u32(h, 28)), "block at %d: bodycrc", off)
	if p.aead != nil {
		nonce := append(bytes.Clone(h[12:16]), make([]byte, 8)...)
		var err error
		body, err = p.aead.Open(nil, nonce, body, slices.Concat(h[4:28], p.b[16:32]))
		check(p.tb, err)
	}
	var err error
	switch h[25] {
	case 1:
		body, err = s2.Decode(nil, body)
	case 2:
		var d *zstd.Decoder
		d, err = zstd.NewReader(nil)
		check(p.tb, err)
		body, err = d.DecodeAll(body, nil)
		d.Close()
	}
	check(p.tb, err)
	p.must(len(body) == u32(h, 8), "block at %d: raw", off)
	return body, h[24], u64(h, 16), u32(h, 12), end
}

// numbers reads a packed array bit by bit.
func (p *page) numbers(b []byte) (out []uint64, rest []byte) {
	n, width := u32(b, 8), int(b[12])
	words := b[16 : 16+(n*width+63)/64*8]
	for i := range n {
		v := u64(b, 0)
		for j := range width {
			bit := i*width + j
			v += uint64(words[bit/64*8+bit%64/8]>>(bit%8)&1) << j
		}
		out = append(out, v)
	}
	return out, b[16+len(words):]
}

func uvarints(b []byte, n int) (out []int, rest []byte) {
	for range n {
		v, k := binary.Uvarint(b)
		out, b = append(out, int(v)), b[k:]
	}
	return out, b
}

// records reads a data block.
func (p *page) records(b []byte) (out []part.Record) {
	count := u32(b, 0)
	restarts, at := b[len(b)-(count+15)/16*4:], b[20:]
	for i := range count {
		if i%16 == 0 {
			p.must(u32(restarts, i/16*4) == len(b)-len(at), "restart %d", i)
		}
		v, rest := uvarints(at, 5)
		h, d, e := v[2], v[2]+v[3], v[2]+v[3]+v[4]
		out = append(out, part.Record{
			Seq: u64(b, 4) + uint64(v[0]), Time: int64(u64(b, 12)) + int64(v[1]), Key: rest[:h], Header: rest[h:d], Data: rest[d:e],
		})
		at = rest[e:]
	}
	p.must(len(at) == len(restarts), "bytes behind the records")
	return out
}

// keyPage returns the keys of a page and the postings before each.
func (p *page) keyPage(b []byte) (keys []string, before []uint64) {
	n, size := u32(b, 0), u32(b, 4)
	at, last := b[8:8+size], ""
	for i := range n {
		if i%16 == 0 {
			p.must(u32(b, 8+size+i/16*4) == size-len(at), "restart of key %d", i)
		}
		v, rest := uvarints(at, 2)
		p.must(i%16 != 0 || v[0] == 0, "key %d does not stand in full", i)
		last = last[:v[0]] + string(rest[:v[1]])
		keys, at = append(keys, last), rest[v[1]:]
	}
	before, rest := p.numbers(b[8+size+(n+15)/16*4:])
	p.must(len(rest) == 0 && len(at) == 0 && len(before) == n, "key page's lengths")
	return keys, before
}

// section reads a section by its head and checks that all its tables say the same.
func (p *page) section(off int) (log uint64, recs []part.Record) {
	b, kind, _, _, _ := p.block(off)
	p.must(kind == 6, "head's kind")
	tables, at := map[string][][]byte{}, 88
	for _, t := range []struct {
		name     string
		n, entry int
	}{{"data", 56, 40}, {"cols", 60, 24}, {"posts", 64, 16}, {"blooms", 72, 16}, {"keys", 68, 32}} {
		for range u32(b, t.n) {
			tables[t.name] = append(tables[t.name], b[at:at+t.entry])
			at += t.entry
		}
	}
	first := b[at:]
	p.must(len(first) == u32(b, 80), "firstlen")
	get := func(e []byte, at int, want byte) []byte {
		raw, kind, log, _, end := p.block(int(u64(e, at)))
		p.must(kind == want && log == u64(b, 0) && end == int(u64(e, at))+u32(e, at+8), "table entry of kind %d", want)
		return raw
	}
	for _, e := range tables["data"] {
		r := p.records(get(e, 16, 1))
		p.must(u64(e, 0) == r[0].Seq && int64(u64(e, 8)) == r[0].Time && u32(e, 32) == len(recs) && u32(e, 36) == len(r), "data table")
		recs = append(recs, r...)
	}
	var keys []string
	var before, posts []uint64
	for _, e := range tables["keys"] {
		k, n := p.keyPage(get(e, 8, 4))
		p.must(u32(e, 0) == len(keys) && u32(e, 4) == int(n[0]) && string(first[u32(e, 24):][:u32(e, 28)]) == k[0], "key table")
		keys, before = append(keys, k...), append(before, n...)
	}
	for _, e := range tables["posts"] {
		n, _ := p.numbers(get(e, 0, 3))
		posts = append(posts, n...)
	}
	p.columns(recs, keys, tables["cols"], get)
	p.must(u64(b, 8) == recs[0].Seq && u64(b, 16) == recs[len(recs)-1].Seq && u32(b, 48) == len(recs) && u32(b, 52) == len(keys), "head")
	p.must(len(posts) == len(recs), "postings")
	for k, key := range keys {
		end := append(before, uint64(len(recs)))[k+1]
		for i := before[k]; i < end; i++ {
			p.must(string(recs[posts[i]].Key) == key && (i == before[k] || posts[i] > posts[i-1]), "posting %d", i)
		}
		if n := uint64(len(tables["blooms"])); n > 0 {
			h := xxhash.Sum64String(key)
			page := get(tables["blooms"][(h>>32)*n>>32], 0, 5)
			p.must(len(page)*8 == u32(b, 76), "bloombits")
			for i := range uint32(7) {
				bit := (uint32(h) + i*(uint32(h>>17)|1)) % uint32(u32(b, 76))
				p.must(page[bit/8]>>(bit%8)&1 == 1, "bloom bit %d of key %q", i, key)
			}
		}
	}
	return u64(b, 0), recs
}

func (p *page) columns(recs []part.Record, keys []string, table [][]byte, get func([]byte, int, byte) []byte) {
	ord := 0
	for _, e := range table {
		gaps, rest := p.numbers(get(e, 8, 2))
		sizes, rest := p.numbers(rest)
		ids, rest := p.numbers(rest)
		p.must(len(rest) == 0 && (len(ids) == 4096 || ord+len(ids) == len(recs)), "column page")
		for i := range gaps {
			r := recs[ord]
			p.must(u64(e, 0)+uint64(i)+gaps[i] == r.Seq && keys[ids[i]] == string(r.Key), "columns of record %d", ord)
			p.must(sizes[i] == uint64(len(r.Key)+len(r.Header)+len(r.Data)), "size of record %d", ord)
			ord++
		}
	}
	p.must(ord == len(recs), "columns of %d records", ord)
}

// file reads the whole part.
func (p *page) file() map[uint64][]part.Record {
	n := len(p.b)
	f := p.b[n-96:]
	p.must(string(p.b[:8]) == "EHDBPART" && u32(p.b, 8) == 1 && castagnoli(0, p.b[:124]) == uint32(u32(p.b, 124)), "header")
	p.must(string(f[:8]) == "EHDBPEND" && u32(f, 8) == 1 && castagnoli(0, f[:92]) == uint32(u32(f, 92)), "footer")
	p.must(bytes.Equal(f[16:32], p.b[16:32]) && f[88] == p.b[12] && u64(f, 64) == uint64(n) && u64(f, 32)+uint64(u32(f, 40)) == uint64(n-96), "footer's fields")
	blocks, sums := 0, map[bool]int{}
	for off := 128; off < n-96; blocks++ {
		_, kind, _, number, end := p.block(off)
		p.must(number == blocks, "block number")
		sums[kind == 1] += end - off
		off = end
	}
	p.must(blocks == u32(f, 12) && sums[false] == int(u64(f, 72)) && sums[true] == int(u64(f, 80)), "footer's blocks")
	dir, kind, _, _, _ := p.block(int(u64(f, 32)))
	p.must(kind == 7 && u32(dir, 0) == u32(f, 44) && len(dir) == 4+32*u32(dir, 0), "directory")
	out := map[uint64][]part.Record{}
	for e := dir[4:]; len(e) > 0; e = e[32:] {
		log, recs := p.section(int(u64(e, 8)))
		p.must(log == u64(e, 0) && len(recs) == u32(e, 20), "directory entry")
		out[log] = recs
	}
	return out
}

func TestPageIsEnough(t *testing.T) {
	logs := map[uint64][]part.Record{3: records(9000, 3000, 1), 8: records(1, 1, 2), 5: records(700, 40, 3)}
	for _, o := range []part.Options{
		{BlockSize: 4000}, {Codec: part.S2}, {Codec: part.Zstd, Keys: keys(t, crypt.AES256GCM, "k")}, {Keys: keys(t, crypt.ChaCha20Poly1305, "k")},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			mem := vfs.NewMem()
			path, _ := build(t, mem, o, logs)
			p := &page{tb: t, b: content(t, mem, path)}
			if o.Keys != nil {
				p.unlock("k")
			}
			got := p.file()
			if len(got) != len(logs) {
				t.Fatalf("%d sections", len(got))
			}
			for log, want := range logs {
				if !slices.EqualFunc(got[log], want, func(a, b part.Record) bool { return same(&a, &b) }) {
					t.Fatalf("log %d differs", log)
				}
			}
		})
	}
}

func TestTombstonesPage(t *testing.T) {
	dead := &part.Tombstones{}
	dead.AddRange(3, 2000)
	dead.Add(90_000)
	b, err := dead.Encode()
	check(t, err)
	bm := roaring.New()
	if err := bm.UnmarshalBinary(b[16:]); err != nil || bm.GetCardinality() != 1998 || !bm.Contains(90_000) {
		t.Fatal(err)
	}
	if string(b[:4]) != "EHTB" || u32(b, 4) != 1 || u32(b, 8) != 1998 || castagnoli(castagnoli(0, b[:12]), b[16:]) != uint32(u32(b, 12)) {
		t.Fatalf("head %x", b[:16])
	}
}
