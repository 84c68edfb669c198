package cutover_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
)

// TestWriteFile: a file is replaced as a whole, nothing else is left in its folder, and an error leaves nothing either.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "list.json")
	for _, text := range []string{"a longer text", "short"} {
		if err := cutover.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if err := cutover.WriteFile(filepath.Join(dir, "no", "list.json"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := cutover.WriteFile(folder, nil); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}
