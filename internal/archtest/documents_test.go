package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTests: every test that a document names as its proof is there.
func TestDocumentsNameTests(t *testing.T) {
	defined := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range definition.FindAllSubmatch(b, -1) {
			defined[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(nats\.go's |test:)?\b((?:Test|Fuzz)[A-Z]\w*)`) // the first of others' suites
	for _, document := range []string{"docs/parity.md", "SECURITY.md", "docs/failure-modes.md"} {
		b, err := os.ReadFile(filepath.Join("../..", document))
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, m := range named.FindAllStringSubmatch(string(b), -1) {
			if m[1] != "" {
				continue
			}
			if count++; !defined[m[2]] {
				t.Errorf("%s names %s, which is not there", document, m[2])
			}
		}
		if count < 10 {
			t.Errorf("%s names %d tests only", document, count)
		}
	}
}
