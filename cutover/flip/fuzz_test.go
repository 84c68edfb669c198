package flip

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
)

// FuzzJournal: whatever stands in a journal, it is refused or read, and what was read once is read again, with what is added.
func FuzzJournal(f *testing.F) {
	line := func(doc string) string {
		return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(doc), castagnoli), doc)
	}
	f.Add([]byte(line(`{"epoch":1,"event":"shadow"}`)+line(`{"epoch":2,"event":"flip","last_seq":7}`)), []byte("0000"))
	f.Add([]byte(line(`{"epoch":1,"event":"hook","abort_on":["G1"]}`)), []byte(line(`{}`)))
	f.Add([]byte(line(`5`)), []byte{})
	f.Add([]byte("\n"), []byte("\n\n"))
	f.Fuzz(func(t *testing.T, whole, rest []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, journalName)
		if err := os.WriteFile(path, append(bytes.Clone(whole), rest...), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(dir)
		if err != nil {
			return
		}
		if err := j.add(&Entry{Epoch: 9, Event: EventAbort, Scope: cutover.Scope{Account: "$G", Stream: "S"}}); err != nil {
			t.Fatal(err)
		}
		want := j.all()
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		again, err := openJournal(dir)
		if err != nil {
			t.Fatalf("read once, and then: %v", err)
		}
		if got := again.all(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, was %+v", got, want)
		}
		if err := again.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestJournalThatIsNotUnderstood: a last line that is as it was written, but means nothing here, was not cut off by a crash.
// To drop it might forget who has the say about a stream.
func TestJournalThatIsNotUnderstood(t *testing.T) {
	dir := t.TempDir()
	doc := `{"epoch":"of another form"}`
	line := fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(doc), castagnoli), doc)
	if err := os.WriteFile(filepath.Join(dir, journalName), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err := openJournal(dir); err == nil {
		t.Errorf("it is read as %+v", j.all())
		_ = j.close()
	}
}
