package storage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// secret is how tests have a directory encrypted.
func secret(current string, previous ...string) crypt.RingOptions {
	o := crypt.RingOptions{Cipher: crypt.AES256GCM, Cost: 1}
	if current != "" {
		o.Secret = []byte(current)
	}
	for _, p := range previous {
		o.Previous = append(o.Previous, []byte(p))
	}
	return o
}

// files returns what every file of a directory holds, but for the lock.
func files(t *testing.T, fsys vfs.FS, dirs ...string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range dirs {
		names, err := fsys.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := fsys.OpenRead(path.Join(dir, name))
			if err != nil || name == "LOCK" {
				continue // a directory
			}
			size, err := f.Size()
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, size)
			if size > 0 {
				if _, err := f.ReadAt(b, 0); err != nil {
					t.Fatal(err)
				}
			}
			out[path.Join(dir, name)] = b
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

var dataDirs = []string{"data", "data/wal", "data/manifest", "data/parts"}

// clientWords are what a client's data holds, each of another kind.
var clientWords = []string{
	"thesubject", "theheader", "thepayload", "thelogname", "thestatename", "thestatechange",
}

// shows returns where a word can be read.
func shows(t *testing.T, fsys vfs.FS) (found []string) {
	t.Helper()
	for name, b := range files(t, fsys, dataDirs...) {
		for _, w := range clientWords {
			if bytes.Contains(b, []byte(w)) {
				found = append(found, name+": "+w)
			}
		}
	}
	return found
}

// speak writes each of clientWords n times, from the sequence on.
func speak(t *testing.T, s *Store, l *Log, state *StateLog, from uint64, n int) {
	t.Helper()
	for i := range n {
		seq := from + uint64(i)
		err := l.Append(&Record{
			Seq: seq, Time: int64(seq), Key: fmt.Append(nil, "thesubject.", i%7), Header: []byte("NATS/1.0\r\nX: theheader\r\n\r\n"),
			Data: bytes.Repeat([]byte("thepayload "), 8),
		}, nil)
		if err == nil {
			err = state.Append(fmt.Append(nil, "thestatechange ", i), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.durable(); err != nil {
		t.Fatal(err)
	}
}

func openEncrypted(t *testing.T, disk vfs.FS, e crypt.RingOptions) *Store {
	t.Helper()
	o := sealedOptions(disk)
	o.Encryption = e
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func begin(t *testing.T, s *Store) (*Log, *StateLog) {
	t.Helper()
	l, err := s.CreateLog(LogSpec{Shards: []ShardID{0}, Name: "thelogname"})
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.CreateStateLog(1, "thestatename", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Catalog().Append([]byte("thelogname of the catalog"), nil); err != nil {
		t.Fatal(err)
	}
	return l, state
}

// heard checks that the log holds the records up to n.
func heard(t *testing.T, s *Store, id LogID, n uint64) *Log {
	t.Helper()
	l, err := s.OpenLog(id, LogSpec{})
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= n; seq++ {
		r, err := l.Get(seq)
		if err != nil || !bytes.HasPrefix(r.Data, []byte("thepayload")) {
			t.Fatalf("record %d: %q, %v", seq, r.Data, err)
		}
	}
	return l
}

// TestEncryptedAtRest looks for what a client wrote in every file, in every state that it goes through.
func TestEncryptedAtRest(t *testing.T) {
	for _, e := range []crypt.RingOptions{{}, secret("one")} {
		disk := vfs.NewMem()
		s := openEncrypted(t, disk, e)
		l, state := begin(t, s)
		seen := map[string]bool{}
		look := func(when string) {
			t.Helper()
			found := shows(t, disk)
			if e.Secret != nil && len(found) > 0 {
				t.Fatalf("%s: %v", when, found)
			}
			for _, f := range found {
				seen[f[strings.LastIndex(f, " ")+1:]] = true
			}
		}
		for round := range uint64(3) {
			speak(t, s, l, state, 1+60*round, 60)
			look("in the write-ahead log")
			l.SetCompress(round == 1)
			if err := s.sealer.seal(noPace); err != nil {
				t.Fatal(err)
			}
			look("sealed")
		}
		var all []*sealedPart
		for p := range maps.Values(s.sealer.parts) {
			if ageOf(p.path) > 0 {
				all = append(all, p)
			}
		}
		if err := s.sealer.tidy(noPace); err != nil || len(all) == 0 {
			t.Fatal(err)
		}
		look("merged")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		look("closed")
		s = openEncrypted(t, disk, e)
		heard(t, s, l.ID(), 180)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		look("opened again")
		if e.Secret == nil && len(seen) != len(clientWords) {
			t.Fatalf("without encryption only %v shows: the test cannot fail for the others", seen)
		}
	}
}

// TestEncryptLater opens a directory that is not encrypted with a secret. In a while nothing of what was there before
// can be read in any file, though nothing is written any more.
func TestEncryptLater(t *testing.T) {
	disk := vfs.NewMem()
	s := openEncrypted(t, disk, crypt.RingOptions{})
	l, state := begin(t, s)
	for round := range uint64(2) {
		speak(t, s, l, state, 1+60*round, 60)
		if err := s.sealer.seal(noPace); err != nil {
			t.Fatal(err)
		}
	}
	speak(t, s, l, state, 121, 30)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	o := sealedOptions(disk)
	o.SealMaxAge, o.Encryption = 10*time.Millisecond, secret("one")
	o.Events.AllEncrypted = func() { close(done) }
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	heard(t, s, l.ID(), 150)
	<-done
	for deadline := time.Now().Add(20 * time.Second); len(shows(t, disk)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(shows(t, disk))
		}
	}
	if st := s.Stats(); st.PlainParts != 0 || st.Parts == 0 {
		t.Fatalf("%+v", st)
	}
	heard(t, s, l.ID(), 150)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openEncrypted(t, disk, secret("one"))
	heard(t, s, l.ID(), 150)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEncryptionRefused opens an encrypted directory as it must not be opened: the error says what to do, and no file
// is changed.
func TestEncryptionRefused(t *testing.T) {
	disk := vfs.NewMem()
	s := openEncrypted(t, disk, secret("one"))
	l, state := begin(t, s)
	speak(t, s, l, state, 1, 50)
	if err := s.sealer.seal(noPace); err != nil {
		t.Fatal(err)
	}
	speak(t, s, l, state, 51, 50)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, e crypt.RingOptions, want string) {
		t.Helper()
		before := files(t, disk, dataDirs...)
		o := sealedOptions(disk)
		o.Encryption = e
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v", what, err)
		}
		if after := files(t, disk, dataDirs...); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Fatalf("%s: files were changed", what)
		}
	}
	refused("no key", secret(""), "no key is configured")
	refused("a wrong key", secret("two"), "encrypted with another key")
	refused("two wrong keys", secret("two", "three"), "encrypted with another key")
	ring := files(t, disk, "data")
	for _, name := range []string{crypt.RingName, crypt.CopyName} {
		if err := disk.Remove("data/" + name); err != nil {
			t.Fatal(err)
		}
	}
	refused("keys gone", secret("one"), "the data directory's keys is missing")
	refused("keys gone, and none configured", secret(""), "the data directory's keys is missing")
	f, err := disk.Create("data/" + crypt.CopyName)
	if err == nil {
		_, err = f.WriteAt(ring["data/"+crypt.RingName], 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s = openEncrypted(t, disk, secret("one"))
	heard(t, s, l.ID(), 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRotateCrash changes the secret of a directory and loses power at each operation on the disk meanwhile. What was
// there is there, with the new secret (and the one before it, until the change is done), and when a start with the new
// secret is done, the new one alone opens it.
func TestRotateCrash(t *testing.T) {
	disk := vfs.NewMem()
	s := openEncrypted(t, disk, secret("one"))
	l, state := begin(t, s)
	speak(t, s, l, state, 1, 40)
	if err := s.sealer.seal(noPace); err != nil {
		t.Fatal(err)
	}
	speak(t, s, l, state, 41, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var crashes []*vfs.Mem
	fault := vfs.NewFault(disk, func(op vfs.Op) error {
		if op.Kind.Changes() {
			for seed, keep := range []float64{0, 0.5, 1} {
				crashes = append(crashes, disk.CrashClone(vfs.CrashOptions{Seed: uint64(seed), Keep: keep, Journal: seed == 1}))
			}
		}
		return nil
	})
	s = openEncrypted(t, fault, secret("two", "one"))
	fault.SetHook(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	crashes = append(crashes, disk.CrashClone(vfs.CrashOptions{}))
	t.Logf("%d crashes", len(crashes))
	back := 0
	for i, c := range crashes {
		o := sealedOptions(c)
		o.Encryption = secret("two")
		s, err := Open(t.Context(), o)
		if errors.Is(err, crypt.ErrSecret) { // the change had not begun
			s = openEncrypted(t, c, secret("one"))
			back++
		} else if err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		heard(t, s, l.ID(), 60)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openEncrypted(t, c, secret("two", "one"))
		heard(t, s, l.ID(), 60)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openEncrypted(t, c, secret("two"))
		heard(t, s, l.ID(), 60)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if back == 0 || back == len(crashes) {
		t.Fatalf("the change had not begun in %d of %d crashes", back, len(crashes))
	}
}
