package crypt

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const ringDir = "d"

func ringDisk(t *testing.T) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	if err := vfs.MakeDir(disk, ringDir); err != nil {
		t.Fatal(err)
	}
	return disk
}

func secret(current string, previous ...string) RingOptions {
	o := RingOptions{Secret: []byte(current), Cost: 1}
	for _, p := range previous {
		o.Previous = append(o.Previous, []byte(p))
	}
	return o
}

func openTestRing(t *testing.T, disk vfs.FS, o RingOptions) Ring {
	t.Helper()
	r, err := OpenRing(disk, ringDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ringFile(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	b, err := readFile(disk, ringDir+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, disk vfs.FS, name string, b []byte) {
	t.Helper()
	_ = disk.Remove(ringDir + "/" + name) // it may be missing
	f, err := disk.Create(ringDir + "/" + name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRing(t *testing.T) {
	disk := ringDisk(t)
	if r := openTestRing(t, disk, RingOptions{}); r.Keys != nil || r.Made {
		t.Fatal("a ring without a secret")
	}
	made := openTestRing(t, disk, secret("one"))
	if !made.Made || made.Rotated || made.Keys.Cipher() != ChaCha20Poly1305 {
		t.Fatalf("made: %+v", made)
	}
	file := ringFile(t, disk, RingName)
	if !bytes.Equal(file, ringFile(t, disk, CopyName)) {
		t.Fatal("the copy differs")
	}
	again := openTestRing(t, disk, secret("one"))
	if again.Made || again.Keys.Current() != made.Keys.Current() {
		t.Fatalf("again: %+v", again)
	}
	for want, o := range map[error]RingOptions{ErrNoSecret: {}, ErrSecret: secret("two", "three")} {
		if _, err := OpenRing(disk, ringDir, o); !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	if !bytes.Equal(file, ringFile(t, disk, RingName)) {
		t.Fatal("an open that was refused wrote")
	}
	box, err := made.Keys.Seal(nil, nil, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	rotated := openTestRing(t, disk, secret("two", "zero", "one"))
	if !rotated.Rotated || rotated.Keys.Current() == made.Keys.Current() {
		t.Fatalf("rotated: %+v", rotated)
	}
	// from here on the first secret is of no use and not needed
	if _, err := OpenRing(disk, ringDir, secret("one")); !errors.Is(err, ErrSecret) {
		t.Fatalf("with the secret before: %v", err)
	}
	r := openTestRing(t, disk, secret("two"))
	if got, err := r.Keys.Open(nil, nil, box); err != nil || string(got) != "x" {
		t.Fatalf("what was encrypted before: %q, %v", got, err)
	}
}

// TestRingDamage flips every bit of each file, cuts it, and removes it: the other one makes it whole again.
func TestRingDamage(t *testing.T) {
	for _, name := range []string{RingName, CopyName} {
		disk := ringDisk(t)
		want := openTestRing(t, disk, secret("one")).Keys.Current()
		whole := ringFile(t, disk, name)
		heals := func(what string, b []byte) {
			t.Helper()
			if put(t, disk, name, b); b == nil {
				_ = disk.Remove(ringDir + "/" + name)
			}
			if r, err := OpenRing(disk, ringDir, secret("one")); err != nil || r.Made || r.Keys.Current() != want {
				t.Fatalf("%s, %s: %+v, %v", name, what, r, err)
			}
			if !bytes.Equal(ringFile(t, disk, name), whole) {
				t.Fatalf("%s, %s: it is not written again", name, what)
			}
		}
		for bit := range 8 * len(whole) {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			heals(fmt.Sprint("bit ", bit), b)
		}
		for n := range whole {
			heals(fmt.Sprint("cut to ", n), whole[:n])
		}
		heals("missing", nil)
	}
	disk := ringDisk(t)
	openTestRing(t, disk, secret("one"))
	put(t, disk, RingName, []byte("x"))
	put(t, disk, CopyName, nil)
	if _, err := OpenRing(disk, ringDir, secret("one")); !errors.Is(err, ErrRing) {
		t.Fatalf("both damaged: %v", err)
	}
}

// TestRingCrash loses power at each operation of a start that makes a ring, and of one that changes the secret: what a
// ring gave out before is never lost, and the change can be made again or taken back.
func TestRingCrash(t *testing.T) {
	for _, rotate := range []bool{false, true} {
		disk := ringDisk(t)
		if err := disk.SyncDir("."); err != nil {
			t.Fatal(err)
		}
		o := secret("one")
		var old *Keys
		if rotate {
			old, o = openTestRing(t, disk, o).Keys, secret("two", "one")
		}
		var crashes []*vfs.Mem
		fault := vfs.NewFault(disk, func(op vfs.Op) error {
			if op.Kind.Changes() {
				for seed, keep := range []float64{0, 0.5, 1} {
					crashes = append(crashes, disk.CrashClone(vfs.CrashOptions{Seed: uint64(seed), Keep: keep}))
				}
			}
			return nil
		})
		fresh := openTestRing(t, fault, o)
		crashes = append(crashes, disk.CrashClone(vfs.CrashOptions{}))
		if len(crashes) < 20 {
			t.Fatalf("%d crashes", len(crashes))
		}
		for i, c := range crashes {
			last := i == len(crashes)-1
			r, err := OpenRing(c, ringDir, o)
			if err != nil {
				t.Fatalf("rotate %v, crash %d: %v", rotate, i, err)
			}
			if last && (r.Made || r.Rotated || r.Keys.Current() != fresh.Keys.Current()) {
				t.Fatalf("rotate %v: a ring that was given out is lost: %+v", rotate, r)
			}
			if old == nil {
				continue
			}
			if r.Made || r.Keys.keys[len(r.Keys.keys)-1].id != old.Current() {
				t.Fatalf("crash %d: the old key is lost", i)
			}
		}
	}
}
