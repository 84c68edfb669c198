package inspect

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
)

const tombHead = 16

// storeTombHead is what the store puts before tombstones: how many bytes the records counted for.
const storeTombHead = 8

// parseTombs reads the tombstones of a section of count records.
func parseTombs(b []byte, count uint32) (*roaring.Bitmap, error) {
	if len(b) >= storeTombHead && string(b[:4]) != "EHTB" {
		b = b[storeTombHead:]
	}
	if len(b) < tombHead || string(b[:4]) != "EHTB" {
		return nil, errors.New("these are no tombstones")
	}
	if v := le.Uint32(b[4:]); v != 1 {
		return nil, fmt.Errorf("they are damaged or of version %d, which is not known", v)
	}
	if checksum(checksum(0, b[:12]), b[tombHead:]) != le.Uint32(b[12:]) {
		return nil, errors.New("they do not match their checksum")
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
		return nil, fmt.Errorf("there are %d bytes behind the bitmap", r.Len())
	case bm.GetCardinality() != uint64(le.Uint32(b[8:])):
		return nil, fmt.Errorf("there are %d, their header says %d", bm.GetCardinality(), le.Uint32(b[8:]))
	case !bm.IsEmpty() && bm.Maximum() >= count:
		return nil, fmt.Errorf("record %d is beyond the section's %d", bm.Maximum(), count)
	}
	return bm, nil
}
