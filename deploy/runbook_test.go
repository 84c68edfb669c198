package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const runbook = "../docs/failure-modes.md"

// anchors returns the anchors of a page's headings, as they are made from them on the web.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(b), -1) {
		a := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		found[strings.ReplaceAll(a, " ", "-")] = true
	}
	return found
}

// testFuncs returns the names of all tests of the module.
func testFuncs(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRunbook: each section says what it must, a test covers it, and the tests and series it names exist.
func TestRunbook(t *testing.T) {
	b, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	tests, names := testFuncs(t), families(t)
	sections := strings.Split(string(b), "\n### ")[1:]
	if len(sections) < 15 {
		t.Errorf("%d sections", len(sections))
	}
	for _, s := range sections {
		title, _, _ := strings.Cut(s, "\n")
		for _, part := range []string{"**Symptom**", "**Why**", "**Recovery**", "**Look at**", "**Tests**"} {
			if !strings.Contains(s, part) {
				t.Errorf("%s: no %s", title, part)
			}
		}
		if _, covered, _ := strings.Cut(s, "**Tests**"); !regexp.MustCompile(`\bTest[A-Z]`).MatchString(covered) {
			t.Errorf("%s: no test covers it", title)
		}
	}
	for _, page := range []string{runbook, "../docs/operations.md", "../SECURITY.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			if !tests[name] {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
	for _, name := range regexp.MustCompile(`\behdb_[a-z_0-9]+`).FindAllString(string(b), -1) {
		if !names[name] && !names[name+"_bucket"] {
			t.Errorf("/metrics has no %s", name)
		}
	}
}
