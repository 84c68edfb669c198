package manifest_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func keysOf(secrets ...string) *crypt.Keys {
	var list [][]byte
	for _, s := range secrets {
		list = append(list, []byte(s))
	}
	k, err := crypt.NewKeys(crypt.AES256GCM, list...)
	if err != nil {
		panic(err)
	}
	return k
}

// TestEncrypted: nothing of what is in it shows, an old file that is not encrypted is replaced, and so is one of an old
// key; without keys it does not open.
func TestEncrypted(t *testing.T) {
	secret := []byte("the secret spec of a log")
	mem := vfs.NewMem()
	shows := func() bool {
		t.Helper()
		names, err := mem.List("/d/m")
		check(t, err)
		if len(names) != 1 {
			t.Fatal(names)
		}
		return bytes.Contains(raw(t, mem, "/d/m/"+names[0]), secret)
	}
	m := open(t, mem, manifest.Options{Create: true})
	check(t, m.Apply(&manifest.Edit{Logs: []manifest.Log{{ID: 5, Spec: secret}}}))
	want := m.State()
	check(t, m.Close())
	if is, err := manifest.IsEncrypted(mem, "/d/m"); is || err != nil || !shows() {
		t.Fatal(is, err)
	}
	old, rotated := keysOf("old"), keysOf("new", "old")
	for _, k := range []*crypt.Keys{old, old, rotated, keysOf("new")} {
		m := open(t, mem, manifest.Options{Keys: k})
		if got := m.State(); !reflect.DeepEqual(got.Logs, want.Logs) || shows() {
			t.Fatalf("%+v, it shows: %v", got, shows())
		}
		check(t, m.Apply(&manifest.Edit{Logs: []manifest.Log{{ID: 5, Spec: secret, LastSeq: m.State().Edits}}}))
		want = m.State()
		check(t, m.Close())
		if is, err := manifest.IsEncrypted(mem, "/d/m"); !is || err != nil || shows() {
			t.Fatal(is, err)
		}
	}
	for _, k := range []*crypt.Keys{nil, old} {
		if _, err := manifest.Open(mem, "/d/m", manifest.Options{Keys: k}); err == nil {
			t.Fatal("it opens without its key")
		}
	}
}
