package inspect

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/scrypt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// KeysName and KeysCopy are the files that hold a directory's keys, below the data directory.
const (
	KeysName = "KEYS"
	KeysCopy = "KEYS.copy"
)

const (
	keysMagic = "EHDBKEYS"
	keysHead  = 76
	keySize   = 32
	maxCost   = 20

	boxHead   = 32
	chunkSize = 16 << 10
	tagSize   = 16
)

// ErrKeys is wrapped by the error for a directory that is encrypted and cannot be decrypted.
var ErrKeys = errors.New("the data directory is encrypted")

var (
	errNoSecret = fmt.Errorf("%w: give its key (jetstream.key), in EHDB_STORAGE_KEY or a file with --key-file", ErrKeys)
	errSecret   = fmt.Errorf("%w, with another key than the one given", ErrKeys)
	errBothBad  = fmt.Errorf("%w, and the files with its keys, %s and %s, are both damaged: restore one of them from "+
		"a backup of the same directory, without it nothing can be read", ErrKeys, KeysName, KeysCopy)
	errKeysGone = fmt.Errorf("%w, and the files with its keys, %s and %s, are missing: restore one of them from a "+
		"backup of the same directory, without it nothing can be read", ErrKeys, KeysName, KeysCopy)

	// errNoKey says that the key something was encrypted with is not there.
	errNoKey = errors.New("it is encrypted with a key that the directory does not have")
	errBox   = errors.New("it does not decrypt: it was changed, or moved here from elsewhere")
)

// Keys are the keys of a directory, the newest first.
type Keys struct{ list []dirKey }

type dirKey struct {
	raw       []byte
	id        uint64
	wrap, box []byte
}

// Raw returns the keys as they are, the newest first.
func (k *Keys) Raw() (out [][]byte) {
	for _, d := range k.list {
		out = append(out, d.raw)
	}
	return out
}

// ringFile is one of the two files.
type ringFile struct {
	name string
	b    []byte // nil: missing
	bad  error  // why it is not whole
}

// openKeys reads the keys of a directory; nil if it has none. What is wrong with one of the files is a finding.
func openKeys(fsys vfs.FS, dir string, secrets [][]byte) (*Keys, []ringFile, error) {
	files, err := readRings(fsys, dir)
	switch {
	case err != nil:
		return nil, nil, err
	case files[0].b == nil && files[1].b == nil:
		return nil, nil, nil
	case files[0].bad != nil && files[1].bad != nil:
		return nil, files, errBothBad
	case len(secrets) == 0:
		return nil, files, errNoSecret
	}
	best, err := decryptRings(files, secrets)
	if err == nil && best == nil {
		err = errSecret
	}
	return best, files, err
}

// readRings reads the two files and checks them.
func readRings(fsys vfs.FS, dir string) ([]ringFile, error) {
	files := []ringFile{{name: KeysName}, {name: KeysCopy}}
	for i := range files {
		f := &files[i]
		var err error
		f.b, err = readFile(fsys, path.Join(dir, f.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.bad = errors.New("the file is missing")
		case err != nil:
			return nil, err
		default:
			f.bad = checkKeys(f.b)
		}
	}
	return files, nil
}

// decryptRings returns the most keys that one of the whole files holds for one of the secrets; nil if none is the one.
func decryptRings(files []ringFile, secrets [][]byte) (best *Keys, err error) {
	for i := range files {
		if files[i].bad != nil {
			continue
		}
		for _, secret := range secrets {
			k, err := decryptKeys(files[i].b, secret)
			if err != nil {
				return nil, err
			}
			if k != nil && (best == nil || len(k.list) > len(best.list)) {
				best = k
			}
		}
	}
	return best, nil
}

func checkKeys(b []byte) error {
	switch {
	case len(b) < keysHead+4 || string(b[:8]) != keysMagic:
		return errors.New("this is no file of keys")
	case checksum(0, b[:len(b)-4]) != le.Uint32(b[len(b)-4:]):
		return errors.New("the file does not match its checksum")
	case le.Uint32(b[8:]) != 1:
		return fmt.Errorf("the file is of version %d, which is not known", le.Uint32(b[8:]))
	case le.Uint32(b[12:]) == 0 || le.Uint32(b[12:]) > maxCost:
		return fmt.Errorf("the file gives a cost of %d", le.Uint32(b[12:]))
	case uint64(len(b)) != keysHead+uint64(le.Uint32(b[16:]))+4:
		return fmt.Errorf("the file has %d bytes, by its header %d of keys", len(b), le.Uint32(b[16:]))
	}
	return nil
}

// decryptKeys returns the keys in b; nil if secret is not the one.
func decryptKeys(b, secret []byte) (*Keys, error) {
	kek, err := scrypt.Key(secret, b[20:52], 1<<le.Uint32(b[12:]), 8, 1, keySize)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(kek)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, b[52:keysHead], b[keysHead:len(b)-4], b[:52])
	if err != nil || len(plain) == 0 || len(plain)%keySize != 0 {
		return nil, nil //nolint:nilerr // another secret may be the one
	}
	k := &Keys{}
	for ; len(plain) > 0; plain = plain[keySize:] {
		d := dirKey{raw: plain[:keySize]}
		id, err := hkdf.Key(sha256.New, d.raw, nil, "ehdb part master key id 1", 8)
		if err == nil {
			d.id = le.Uint64(id)
			d.wrap, err = hkdf.Key(sha256.New, d.raw, nil, "ehdb part master key 1", keySize)
		}
		if err == nil {
			d.box, err = hkdf.Key(sha256.New, d.raw, nil, "ehdb box key 1", keySize)
		}
		if err != nil {
			return nil, err
		}
		k.list = append(k.list, d)
	}
	return k, nil
}

func (k *Keys) find(id uint64) (*dirKey, error) {
	if k != nil {
		for i := range k.list {
			if k.list[i].id == id {
				return &k.list[i], nil
			}
		}
	}
	return nil, errNoKey
}

// unwrap returns what decrypts the blocks of a part whose header names kind, the key and the wrapped data key.
func (k *Keys) unwrap(kind uint8, keyID uint64, wrapped, id []byte) (cipher.AEAD, error) {
	d, err := k.find(keyID)
	if err != nil {
		return nil, err
	}
	wrap, err := newAEAD(kind, d.wrap)
	if err != nil {
		return nil, err
	}
	key, err := wrap.Open(nil, wrapped[:nonceSize], wrapped[nonceSize:], id)
	if err != nil {
		return nil, errors.New("the wrapped data key does not open with the directory's key")
	}
	return newAEAD(kind, key)
}

// open returns what is in a box that stands in that place (docs/format/encryption.md).
func (k *Keys) open(place, box []byte) ([]byte, error) {
	body := int64(len(box)) - boxHead
	if body < tagSize {
		return nil, errBox
	}
	d, err := k.find(le.Uint64(box))
	if err != nil {
		return nil, err
	}
	kind := box[8]
	if kind != cipherAES && kind != cipherChaCha {
		return nil, errBox
	}
	key, err := hkdf.Expand(sha256.New, d.box, "ehdb box 1"+string(box[8:boxHead]), keySize)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(kind, key)
	if err != nil {
		return nil, err
	}
	count := (body + chunkSize + tagSize - 1) / (chunkSize + tagSize)
	var nonce [nonceSize]byte
	le.PutUint64(nonce[4:], uint64(body-count*tagSize))
	out := make([]byte, 0, body)
	for n, rest := uint32(0), box[boxHead:]; len(rest) > 0; n++ {
		size := min(len(rest), chunkSize+tagSize)
		le.PutUint32(nonce[:], n)
		if out, err = aead.Open(out, nonce[:], rest[:size], place); err != nil {
			return nil, errBox
		}
		rest = rest[size:]
	}
	return out, nil
}

// readKeys opens the directory's keys, and reports what is wrong with their files.
func (d *Directory) readKeys(secrets [][]byte) error {
	keys, files, err := openKeys(d.fs, d.Path, secrets)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path, err)
	}
	d.keys = keys
	for i := range files {
		f := &files[i]
		if f.b != nil {
			d.Files = append(d.Files, FileInfo{Path: f.name, Kind: "keys", Size: int64(len(f.b))})
		}
		if f.bad != nil {
			d.damage(f.name, 0, remedyKeys, "%v; the other file with the directory's keys is whole", f.bad)
		}
	}
	if len(files) == 2 && files[0].bad == nil && files[1].bad == nil && !bytes.Equal(files[0].b, files[1].b) {
		d.add(Finding{
			Severity: Note, File: KeysCopy, Remedy: remedyKeys,
			What: "it differs from " + KeysName + ": a crash ended a change of the key",
		})
	}
	return nil
}

// Keys returns the directory's keys; nil if it is not encrypted.
func (d *Directory) Keys() *Keys { return d.keys }

// keysFor returns the keys of the data directory that a file is in, if that can be found and opened.
func keysFor(fsys vfs.FS, name string, secrets [][]byte) (*Keys, error) {
	for _, dir := range []string{path.Dir(path.Dir(name)), path.Dir(name)} {
		if k, files, err := openKeys(fsys, dir, secrets); len(files) > 0 || err != nil {
			return k, err
		}
	}
	return nil, nil
}
