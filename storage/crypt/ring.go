package crypt

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/scrypt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// The ring is the file that holds a directory's keys, encrypted with what the configured secret gives. It is there
// twice, since without it nothing can be read. All numbers are little-endian.
//
//	0       8         12     16    20     52      76       76+len
//	+-------+---------+------+-----+------+-------+--------+-----+
//	| magic | version | cost | len | salt | nonce | sealed | crc |   CRC-32C over what is before it
//	+-------+---------+------+-----+------+-------+--------+-----+
//	 8       u32       u32    u32   32     24      len      u32
//
// sealed is the keys, 32 bytes each, the newest first, in XChaCha20-Poly1305 under scrypt(secret, salt, N = 2^cost,
// r = 8, p = 1), with bytes 0 to 52 as additional data.
const (
	RingName = "KEYS"
	CopyName = "KEYS.copy"

	ringTemp    = ".tmp"
	ringMagic   = "EHDBKEYS"
	ringVersion = 1
	ringSaltAt  = 20
	ringNonceAt = 52
	ringHead    = 76
	ringMaxKeys = 1 << 10
	ringMaxSize = ringHead + ringMaxKeys*keySize + tagSize + 4

	// DefaultCost has scrypt take 32 MiB and about a tenth of a second, once for each start.
	DefaultCost = 15
	maxCost     = 20
	scryptR     = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of OpenRing.
var (
	ErrNoSecret = errors.New("the data directory is encrypted, and no key is configured: configure the key that it " +
		"was written with")
	ErrSecret = errors.New("the data directory is encrypted with another key than the one configured: configure the " +
		"key that it was written with; if the key is to be changed, give the one before it as the previous key")
	ErrRing = errors.New("the file with the data directory's keys is damaged, and so is its copy: without it nothing " +
		"can be read; restore " + RingName + " from a backup of the same directory")
)

// RingOptions say how a directory is to be encrypted.
type RingOptions struct {
	Cipher   Cipher   // of what is new; Plain: ChaCha20-Poly1305
	Secret   []byte   // empty: none is configured
	Previous [][]byte // secrets from before Secret
	Cost     int      // of a new ring, as a power of two; default DefaultCost
}

// Ring is what OpenRing found or did.
type Ring struct {
	Keys *Keys // nil: the directory is not encrypted
	Made bool  // the directory had no ring
	// Rotated: it was opened with a previous secret. A new key is in use, and that secret is not needed any more.
	Rotated bool
}

// OpenRing opens the ring of dir, whose lock the caller holds. If there is none and a secret is configured it is made,
// durably; if it opens with a previous secret only, it is written anew with a new key before the old ones. A copy that
// is missing or damaged is written again. Errors: ErrNoSecret, ErrSecret, ErrRing, and those of the file system;
// then nothing was changed.
func OpenRing(fsys vfs.FS, dir string, o RingOptions) (Ring, error) {
	if o.Cipher == Plain {
		o.Cipher = ChaCha20Poly1305
	}
	if o.Cost == 0 {
		o.Cost = DefaultCost
	}
	f := ringFiles{fs: fsys, dir: dir}
	if err := f.read(); err != nil {
		return Ring{}, err
	}
	if !f.exists() {
		if len(o.Secret) == 0 {
			return Ring{}, nil
		}
		keys, err := f.renew(nil, &o)
		return Ring{Keys: keys, Made: true}, err
	}
	if len(o.Secret) == 0 {
		return Ring{}, ErrNoSecret
	}
	which, list, err := f.open(o.Secret)
	if err != nil {
		return Ring{}, err
	}
	if list != nil {
		if err := f.level(which); err != nil {
			return Ring{}, err
		}
		keys, err := NewKeys(o.Cipher, list...)
		return Ring{Keys: keys}, err
	}
	for _, secret := range o.Previous {
		if _, list, err = f.open(secret); err != nil {
			return Ring{}, err
		}
		if list != nil {
			keys, err := f.renew(list, &o)
			return Ring{Keys: keys, Rotated: true}, err
		}
	}
	return Ring{}, ErrSecret
}

// ringFiles are the two files of a ring.
type ringFiles struct {
	fs    vfs.FS
	dir   string
	bytes [2][]byte // nil: missing
	whole [2]bool
}

func (f *ringFiles) name(i int) string { return path.Join(f.dir, []string{RingName, CopyName}[i]) }

func (f *ringFiles) exists() bool { return f.bytes[0] != nil || f.bytes[1] != nil }

func (f *ringFiles) read() error {
	for i := range f.bytes {
		b, err := readFile(f.fs, f.name(i))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.name(i), err)
		}
		f.bytes[i] = b
		if f.whole[i], err = checkRing(b); err != nil {
			return fmt.Errorf("%s: %w", f.name(i), err)
		}
	}
	if f.exists() && !f.whole[0] && !f.whole[1] {
		return fmt.Errorf("%s: %w", f.name(0), ErrRing)
	}
	return nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(size, ringMaxSize+1))
	if len(b) == 0 {
		return b, nil
	}
	_, err = f.ReadAt(b, 0)
	return b, err
}

// checkRing tells whether b is whole. An error says that another program wrote it.
func checkRing(b []byte) (bool, error) {
	if len(b) < ringHead+4 || string(b[:8]) != ringMagic || len(b) != ringHead+int(le.Uint32(b[16:]))+4 ||
		crc32.Checksum(b[:len(b)-4], castagnoli) != le.Uint32(b[len(b)-4:]) {
		return false, nil
	}
	if v := le.Uint32(b[8:]); v != ringVersion {
		return false, fmt.Errorf("format version %d, this program knows %d", v, ringVersion)
	}
	if cost := le.Uint32(b[12:]); cost == 0 || cost > maxCost {
		return false, fmt.Errorf("cost %d, this program knows up to %d", cost, maxCost)
	}
	return true, nil
}

// open returns the keys of the ring that opens with secret, and which file that is; nil if none does. If both do, the
// one with more keys is the newer.
func (f *ringFiles) open(secret []byte) (which int, list [][]byte, err error) {
	for i := range f.bytes {
		if !f.whole[i] || i == 1 && bytes.Equal(f.bytes[0], f.bytes[1]) {
			continue
		}
		keys, err := openRing(f.bytes[i], secret)
		if err != nil {
			return 0, nil, err
		}
		if len(keys) > len(list) {
			which, list = i, keys
		}
	}
	return which, list, nil
}

// openRing returns the keys in b; nil if secret is not the one.
func openRing(b, secret []byte) ([][]byte, error) {
	key, err := scrypt.Key(secret, b[ringSaltAt:ringNonceAt], 1<<le.Uint32(b[12:]), scryptR, 1, keySize)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, b[ringNonceAt:ringHead], b[ringHead:len(b)-4], b[:ringNonceAt])
	if err != nil || len(plain) == 0 || len(plain)%keySize != 0 {
		return nil, nil //nolint:nilerr // another secret may be the one
	}
	var list [][]byte
	for ; len(plain) > 0; plain = plain[keySize:] {
		list = append(list, plain[:keySize:keySize])
	}
	return list, nil
}

// sealRing returns the file of a ring with the keys in list.
func sealRing(list [][]byte, secret []byte, cost int) ([]byte, error) {
	b := append(make([]byte, 0, ringMaxSize), ringMagic...)
	b = le.AppendUint32(b, ringVersion)
	b = le.AppendUint32(b, uint32(cost))                      //nolint:gosec // small
	b = le.AppendUint32(b, uint32(len(list)*keySize+tagSize)) //nolint:gosec // small
	b = b[:ringHead]
	_, _ = rand.Read(b[ringSaltAt:]) // never fails
	key, err := scrypt.Key(secret, b[ringSaltAt:ringNonceAt], 1<<cost, scryptR, 1, keySize)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	b = aead.Seal(b, b[ringNonceAt:ringHead], bytes.Join(list, nil), b[:ringNonceAt])
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// renew puts a new key before those in list and writes the ring for o.Secret. The new key is given out only when both
// files have it, so either of them is enough for everything that was ever encrypted.
func (f *ringFiles) renew(list [][]byte, o *RingOptions) (*Keys, error) {
	if len(list) == ringMaxKeys {
		return nil, fmt.Errorf("%s: the key was changed %d times, and cannot be more often", f.name(0), len(list))
	}
	fresh := make([]byte, keySize)
	_, _ = rand.Read(fresh) // never fails
	list = append([][]byte{fresh}, list...)
	keys, err := NewKeys(o.Cipher, list...)
	if err != nil {
		return nil, err
	}
	b, err := sealRing(list, o.Secret, o.Cost)
	if err != nil {
		return nil, err
	}
	for i := len(f.bytes) - 1; i >= 0; i-- {
		if err := f.write(i, b); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// level makes the other file the same as that one.
func (f *ringFiles) level(which int) error {
	if bytes.Equal(f.bytes[0], f.bytes[1]) {
		return nil
	}
	return f.write(1-which, f.bytes[which])
}

// write replaces a file, durably.
func (f *ringFiles) write(i int, b []byte) error {
	name := f.name(i)
	temp := name + ringTemp
	if err := f.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by a process that ended here; the directory is locked, so nobody is writing it
	}
	w, err := f.fs.Create(temp)
	if err != nil {
		return err
	}
	if _, err = w.WriteAt(b, 0); err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := f.fs.Rename(temp, name); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}
