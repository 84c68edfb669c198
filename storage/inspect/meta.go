package inspect

import (
	"errors"
	"fmt"
)

// MetaName is the file that says what a directory is.
const MetaName = "META"

const (
	metaMagic = "EHDBMETA"
	metaSize  = 20
	maxShards = 1 << 16
)

// parseMeta returns the number of shards in a META file.
func parseMeta(b []byte) (shards int, err error) {
	if len(b) < metaSize || string(b[:8]) != metaMagic {
		return 0, errors.New("this is not the META of a data directory")
	}
	if v := le.Uint32(b[8:]); v != 1 {
		return 0, fmt.Errorf("it is damaged or of format version %d, which is not known", v)
	}
	if len(b) != metaSize {
		return 0, fmt.Errorf("it is %d bytes long, not %d", len(b), metaSize)
	}
	if checksum(0, b[:16]) != le.Uint32(b[16:]) {
		return 0, errors.New("it does not match its checksum")
	}
	n := le.Uint32(b[12:])
	if n == 0 || n > maxShards {
		return 0, fmt.Errorf("it gives %d shards", n)
	}
	return int(n), nil
}

// EncodeMeta returns a META file.
func EncodeMeta(shards int) []byte {
	b := append(make([]byte, 0, metaSize), metaMagic...)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, uint32(shards))
	return le.AppendUint32(b, checksum(0, b))
}
