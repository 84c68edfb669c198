package part

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
)

// Tombstones are the ordinals of a section that are deleted. The zero value and nil are empty. Queries read them: they
// must not be changed meanwhile, so change a Clone and replace it.
//
// Encoded (docs/format/part.md):
//
//	0       4         8       12      16
//	+-------+---------+-------+-------+-----------------+
//	| magic | version | count | crc   | roaring bitmap  |   crc covers bytes 0 to 12 and the bitmap
//	+-------+---------+-------+-------+-----------------+
type Tombstones struct{ bm *roaring.Bitmap }

const (
	tombMagic   = "EHTB"
	tombVersion = 1
	tombHead    = 16
)

// Add marks ord as deleted and reports whether it was not before.
func (t *Tombstones) Add(ord uint32) bool {
	t.init()
	return t.bm.CheckedAdd(ord)
}

// AddRange marks the ordinals in [lo, hi) as deleted.
func (t *Tombstones) AddRange(lo, hi uint32) {
	t.init()
	t.bm.AddRange(uint64(lo), uint64(hi))
}

func (t *Tombstones) init() {
	if t.bm == nil {
		t.bm = roaring.New()
		t.bm.SetCopyOnWrite(true)
	}
}

func (t *Tombstones) empty() bool { return t == nil || t.bm == nil || t.bm.IsEmpty() }

// Contains reports whether ord is deleted.
func (t *Tombstones) Contains(ord uint32) bool { return t != nil && t.bm != nil && t.bm.Contains(ord) }

// Count returns how many are deleted.
func (t *Tombstones) Count() uint64 {
	if t.empty() {
		return 0
	}
	return t.bm.GetCardinality()
}

// Rank returns how many below ord are deleted.
func (t *Tombstones) Rank(ord uint32) uint64 {
	if t.empty() || ord == 0 {
		return 0
	}
	return t.bm.Rank(ord - 1)
}

// Clone returns a copy that shares its bytes until one of the two is changed. It takes time for each 65,536 ordinals,
// not for each. It must not run while t is changed or cloned elsewhere.
func (t *Tombstones) Clone() *Tombstones {
	if t.empty() {
		return &Tombstones{}
	}
	return &Tombstones{bm: t.bm.Clone()}
}

// Each calls fn for the deleted ordinals from lo on, ascending, until it returns false.
func (t *Tombstones) Each(lo uint32, fn func(ord uint32) bool) {
	if t.empty() {
		return
	}
	it := t.bm.Iterator()
	it.AdvanceIfNeeded(lo)
	for it.HasNext() {
		if !fn(it.Next()) {
			return
		}
	}
}

// nearLive is how many ordinals are looked at one by one.
const nearLive = 8

// nextLive returns the first ordinal >= ord that is not deleted. (The bitmap's own NextAbsentValue is wrong beyond
// 65,536, as of v2.30.0.)
func (t *Tombstones) nextLive(ord uint32) uint32 {
	if !t.Contains(ord) {
		return ord
	}
	for end := ord + nearLive; ord < end; {
		if ord++; !t.bm.Contains(ord) {
			return ord
		}
	}
	// All of [ord, ord+n) are deleted if there are n deleted among them. n grows until that is not so.
	before := t.Rank(ord)
	whole := func(n uint32) bool { return t.Rank(ord+n)-before == uint64(n) }
	n := uint32(nearLive)
	for n < math.MaxUint32-ord-n && whole(n) {
		n *= 2
	}
	n = min(n, math.MaxUint32-ord)
	return ord + uint32(sort.Search(int(n), func(i int) bool { return !whole(uint32(i) + 1) }))
}

// Encode returns the bytes of t.
func (t *Tombstones) Encode() ([]byte, error) {
	var buf bytes.Buffer
	buf.Write(make([]byte, tombHead))
	bm := roaring.New()
	if !t.empty() {
		bm = t.bm.Clone()
		bm.RunOptimize()
	}
	if _, err := bm.WriteTo(&buf); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	copy(b, tombMagic)
	le.PutUint32(b[4:], tombVersion)
	le.PutUint32(b[8:], uint32(bm.GetCardinality()))
	le.PutUint32(b[12:], tombCRC(b))
	return b, nil
}

func tombCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[tombHead:])
}

// DecodeTombstones reads what Encode returned for a section of count records. where is what a *CorruptError calls it.
func DecodeTombstones(where string, b []byte, count uint32) (*Tombstones, error) {
	bm, err := decodeTombs(b, count)
	if err != nil {
		return nil, &CorruptError{Path: where, Err: err, Hint: hintRestore}
	}
	bm.SetCopyOnWrite(true)
	return &Tombstones{bm: bm}, nil
}

func decodeTombs(b []byte, count uint32) (*roaring.Bitmap, error) {
	if len(b) < tombHead || string(b[:4]) != tombMagic {
		return nil, errors.New("these are no tombstones")
	}
	v, sum := le.Uint32(b[4:]), tombCRC(b) == le.Uint32(b[12:])
	switch {
	case !sum && v != tombVersion:
		return nil, fmt.Errorf("tombstones are damaged or of version %d, which is not known", v)
	case !sum:
		return nil, errors.New("tombstones do not match their checksum")
	case v != tombVersion:
		return nil, fmt.Errorf("tombstones have version %d, this program knows %d", v, tombVersion)
	}
	bm := roaring.New()
	r := bytes.NewReader(b[tombHead:])
	if _, err := bm.ReadFrom(r); err != nil {
		return nil, err
	}
	if err := bm.Validate(); err != nil && !bm.IsEmpty() {
		return nil, err
	}
	switch {
	case r.Len() != 0:
		return nil, fmt.Errorf("%d bytes behind the bitmap", r.Len())
	case bm.GetCardinality() != uint64(le.Uint32(b[8:])):
		return nil, fmt.Errorf("%d ordinals, the header says %d", bm.GetCardinality(), le.Uint32(b[8:]))
	case !bm.IsEmpty() && bm.Maximum() >= count:
		return nil, fmt.Errorf("ordinal %d is beyond the section's %d records", bm.Maximum(), count)
	}
	return bm, nil
}

// Live returns the first ordinal >= ord that is not deleted.
func (t *Tombstones) Live(ord uint32) uint32 { return t.nextLive(ord) }

// Without calls fn for what is deleted in t and not in old, ascending.
func (t *Tombstones) Without(old *Tombstones, fn func(ord uint32)) {
	if t.empty() {
		return
	}
	bm := t.bm
	if !old.empty() {
		bm = roaring.AndNot(t.bm, old.bm)
	}
	for it := bm.Iterator(); it.HasNext(); {
		fn(it.Next())
	}
}
