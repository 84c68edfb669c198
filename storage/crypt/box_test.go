package crypt

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

func testKeys(tb testing.TB, c Cipher, secrets ...string) *Keys {
	tb.Helper()
	var list [][]byte
	for _, s := range secrets {
		list = append(list, []byte(s))
	}
	k, err := NewKeys(c, list...)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// pattern is n bytes that differ from their neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func TestBox(t *testing.T) {
	place := []byte("here")
	for _, c := range []Cipher{AES256GCM, ChaCha20Poly1305} {
		k := testKeys(t, c, "a")
		for _, n := range []int{0, 1, 100, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 5} {
			t.Run(fmt.Sprint(c, n), func(t *testing.T) {
				plain := pattern(n)
				before := []byte("before")
				box, err := k.Seal(before, place, plain[:n/3], nil, plain[n/3:n/2], plain[n/2:])
				if err != nil {
					t.Fatal(err)
				}
				box = box[len(before):]
				if int64(len(box)) != BoxSize(int64(n)) {
					t.Fatalf("the box has %d bytes, want %d", len(box), BoxSize(int64(n)))
				}
				if got, ok := PlainSize(int64(len(box))); !ok || got != int64(n) {
					t.Fatalf("a box of %d holds %d, %v", len(box), got, ok)
				}
				got, err := k.Open([]byte("x"), place, box)
				if err != nil || !bytes.Equal(got[1:], plain) {
					t.Fatalf("opened: %d bytes, %v", len(got)-1, err)
				}
				readRanges(t, k, place, box, plain)
				if n > 16 && bytes.Contains(box, plain[:16]) {
					t.Fatal("the box shows what is in it")
				}
			})
		}
	}
}

func readRanges(t *testing.T, k *Keys, place, box, plain []byte) {
	t.Helper()
	read := func(b []byte, off int64) error {
		if off < 0 || off+int64(len(b)) > int64(len(box)) {
			return fmt.Errorf("read of %d at %d", len(b), off)
		}
		copy(b, box[off:])
		return nil
	}
	n := len(plain)
	for _, off := range []int{0, 1, n / 2, chunkSize - 1, chunkSize, n - 1} {
		for _, size := range []int{0, 1, 7, chunkSize, chunkSize + 2, n} {
			if off < 0 || off+size > n {
				continue
			}
			p := make([]byte, size)
			if err := k.OpenAt(p, place, int64(len(box)), int64(off), read); err != nil || !bytes.Equal(p, plain[off:off+size]) {
				t.Fatalf("%d bytes at %d: %v", size, off, err)
			}
		}
	}
	if err := k.OpenAt(make([]byte, 2), place, int64(len(box)), int64(n-1), read); err == nil {
		t.Fatal("read beyond the end")
	}
}

// TestBoxChanged changes each bit of a box, cuts it, and takes it elsewhere.
func TestBoxChanged(t *testing.T) {
	k, place := testKeys(t, AES256GCM, "a"), []byte("here")
	plain := pattern(50)
	box, err := k.Seal(nil, place, plain)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		if _, err := k.Open(nil, place, b); !errors.Is(err, ErrOpen) && !errors.Is(err, ErrKey) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for bit := range 8 * len(box) {
		b := bytes.Clone(box)
		b[bit/8] ^= 1 << (bit % 8)
		refused(fmt.Sprint("bit ", bit), b)
	}
	for n := range box {
		refused(fmt.Sprint("cut to ", n), box[:n])
	}
	if _, err := k.Open(nil, []byte("there"), box); !errors.Is(err, ErrOpen) {
		t.Fatalf("in another place: %v", err)
	}
	long, err := k.Seal(nil, place, pattern(2*chunkSize))
	if err != nil {
		t.Fatal(err)
	}
	refused("without its last chunk", long[:len(long)-fullChunk])
	swapped := bytes.Clone(long)
	copy(swapped[boxHead:], long[boxHead+fullChunk:])
	copy(swapped[boxHead+fullChunk:], long[boxHead:])
	refused("with its chunks swapped", swapped)
}

// TestBoxTwice: the same bytes in the same place never give the same box, so no nonce is used twice with a key.
func TestBoxTwice(t *testing.T) {
	k := testKeys(t, ChaCha20Poly1305, "a")
	a, err := k.Seal(nil, nil, pattern(64))
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.Seal(nil, nil, pattern(64))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a[boxHead:], b[boxHead:]) || bytes.Equal(a[saltAt:boxHead], b[saltAt:boxHead]) {
		t.Fatal("two boxes are the same")
	}
}

func TestKeys(t *testing.T) {
	old, both := testKeys(t, AES256GCM, "old"), testKeys(t, ChaCha20Poly1305, "new", "old")
	box, err := old.Seal(nil, nil, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := both.Open(nil, nil, box); err != nil || string(got) != "x" {
		t.Fatalf("with the old key behind the new: %q, %v", got, err)
	}
	if KeyOf(box) != old.Current() || old.Current() == both.Current() {
		t.Fatal("keys have the wrong ids")
	}
	for _, k := range []*Keys{nil, testKeys(t, AES256GCM, "other")} {
		if _, err := k.Open(nil, nil, box); !errors.Is(err, ErrKey) {
			t.Fatalf("without the key: %v", err)
		}
	}
	id := []byte("file")
	aead, wrapped, err := old.Wrap(id)
	if err != nil {
		t.Fatal(err)
	}
	again, err := both.Unwrap(AES256GCM, old.Current(), wrapped[:], id)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, nonceSize)
	if got, err := again.Open(nil, nonce, aead.Seal(nil, nonce, []byte("y"), nil), nil); err != nil || string(got) != "y" {
		t.Fatalf("through a wrapped key: %q, %v", got, err)
	}
	if _, err := both.Unwrap(AES256GCM, old.Current(), wrapped[:], []byte("else")); !errors.Is(err, ErrOpen) {
		t.Fatalf("another file's key: %v", err)
	}
}

func BenchmarkBox(b *testing.B) {
	for _, c := range []Cipher{AES256GCM, ChaCha20Poly1305} {
		for _, n := range []int{200, 4 << 10, 256 << 10} {
			b.Run(fmt.Sprint(c, "/", n), func(b *testing.B) {
				k, plain := testKeys(b, c, "a"), pattern(n)
				var dst []byte
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if dst, err = k.Seal(dst[:0], []byte("place"), plain); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
