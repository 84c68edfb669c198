package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// The meta file says what a directory is. It is written once, when the directory is made. All numbers are
// little-endian.
//
//	0       8         12       16    20
//	+-------+---------+--------+-----+
//	| magic | version | shards | crc |   CRC-32C over what is before it
//	+-------+---------+--------+-----+
const (
	metaName    = "META"
	metaMagic   = "EHDBMETA"
	metaVersion = 1
	metaSize    = 20
	walName     = "wal"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeMeta(shards int) []byte {
	b := append(make([]byte, 0, metaSize), metaMagic...)
	b = binary.LittleEndian.AppendUint32(b, metaVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(shards))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeMeta(b []byte) (shards int, err error) {
	if len(b) < metaSize || string(b[:8]) != metaMagic {
		return 0, errors.New("this is not a data directory's meta file")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != metaVersion {
		return 0, fmt.Errorf("the data directory has format version %d, this program knows %d", v, metaVersion)
	}
	if len(b) != metaSize || crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return 0, errors.New("the meta file does not match its checksum")
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if n == 0 || n > maxShards {
		return 0, fmt.Errorf("the meta file gives %d shards", n)
	}
	return int(n), nil
}

// readMeta returns the number of shards of the directory; 0 if it has no meta file yet.
func readMeta(fsys vfs.FS, dir string) (shards int, err error) {
	name := path.Join(dir, metaName)
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	b := make([]byte, min(size, metaSize+1))
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	if shards, err = decodeMeta(b); err != nil {
		return 0, &CorruptError{Path: name, Err: err, Hint: "restore the file from a backup of the same directory"}
	}
	return shards, nil
}

// writeMeta makes the meta file, durably.
func writeMeta(fsys vfs.FS, dir string, shards int) error {
	name := path.Join(dir, metaName)
	temp := name + ".tmp"
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by a process that ended here; the directory is locked, so nobody is writing it
	}
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(encodeMeta(shards), 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
