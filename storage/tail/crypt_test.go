package tail

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// shows reports which file of the log holds secret.
func shows(t *testing.T, m *vfs.Mem, secret []byte) string {
	t.Helper()
	for name, b := range readDisk(t, m) {
		if bytes.Contains(b, secret) {
			return name
		}
	}
	return ""
}

// TestEncryptedFromNowOn opens a log that is not encrypted with keys: what is new is, and when the old segments are
// dropped nothing on the disk shows what was in them, not even a file kept to be used again.
func TestEncryptedFromNowOn(t *testing.T) {
	m := vfs.NewMem()
	w, err := open(smallOptions(m), image{})
	must(t, err)
	secret := []byte("the secret that blocks hold")
	add := func() {
		t.Helper()
		body := append(w.body(60), secret...)
		w.written = append(w.written, body)
		_, pos, err := w.log.Append(body)
		must(t, err)
		w.at = append(w.at, pos)
		must(t, w.sync())
	}
	for range 20 {
		add()
	}
	must(t, w.drop(8)) // leaves spares that were segments
	must(t, w.close())
	if shows(t, m, secret) == "" {
		t.Fatal("a plain log does not show what it holds: this test cannot fail")
	}
	w.opts.Keys = testKeys
	must(t, w.openAgain())
	plain := LSN(len(w.written))
	for range 40 {
		add()
	}
	must(t, w.readAll())
	must(t, w.reopen())
	must(t, w.drop(plain))
	if name := shows(t, m, secret); name != "" {
		t.Fatalf("%s shows what blocks hold", name)
	}
	for range 40 {
		add()
	}
	must(t, w.drop(LSN(len(w.written)-3)))
	must(t, w.reopen())
	must(t, w.close())
	if name := shows(t, m, secret); name != "" {
		t.Fatalf("%s shows what blocks hold", name)
	}
}

// TestEncryptedWithoutKeys: the file and the way on are named, and nothing is changed.
func TestEncryptedWithoutKeys(t *testing.T) {
	d, im := smallLog(t, true, true)
	for _, c := range []struct {
		keys func() (*crypt.Keys, error)
		want string
	}{
		{nil, "keys are missing"},
		{func() (*crypt.Keys, error) { return crypt.NewKeys(crypt.AES256GCM, []byte("another")) }, "key that is not known"},
	} {
		m := d.mem(t)
		o := smallOptions(m)
		o.Keys = c.keys
		_, err := open(o, im)
		if !isCorrupt(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "KEYS") {
			t.Fatal(err)
		}
		for name, b := range readDisk(t, m) {
			if before, ok := d[name]; ok && !bytes.Equal(b, before) && name != lockName {
				t.Fatalf("%s was changed", name)
			}
		}
	}
	failed := errors.New("no keys")
	o := smallOptions(d.mem(t))
	o.Keys = func() (*crypt.Keys, error) { return nil, failed }
	if _, err := Open(o); !errors.Is(err, failed) {
		t.Fatal(err)
	}
}

// TestEncryptedBlockMoved puts a block in the place of another of the same size, with checksums that match, as somebody
// might who knows the format but not the key.
func TestEncryptedBlockMoved(t *testing.T) {
	m := vfs.NewMem()
	w, err := open(boxedOptions(m), image{})
	must(t, err)
	for range 3 {
		must(t, w.append(50))
		must(t, w.sync())
	}
	im := w.expect()
	a, b := w.at[0].Offset, w.at[1].Offset
	must(t, w.close())
	d := readDisk(t, m)
	name := segName(1)
	seg := d[name]
	size := int(crypt.BoxSize(50))
	copy(seg[b:], bytes.Clone(seg[a:int(a)+size]))
	head, err := decodeSegHeader(seg)
	must(t, err)
	at := int64(b) - blockHeaderSize
	h, ok := decodeBlockHeader(seg[at:], head.salt)
	if !ok {
		t.Fatal("no header")
	}
	padded := h.size() - blockHeaderSize
	h.bodyCRC = crc32.Update(head.salt, castagnoli, seg[b:int64(b)+padded])
	h.put(seg[at:], head.salt)
	o := boxedOptions(d.mem(t))
	_, err = open(o, im)
	if !isCorrupt(err) || !errors.Is(err, crypt.ErrOpen) || !strings.Contains(err.Error(), fmt.Sprint(name, ": damaged at offset ", at)) {
		t.Fatal(err)
	}
}
