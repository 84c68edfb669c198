package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const replayed = "../docs/failures-replayed.md"

// sources returns the text of all that is no test: the module's own Go files and tables.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || ext != ".go" && filepath.Base(path) != "keys.txt" {
			return err
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rows returns the cells of the tables of a section, without the heads.
func rows(section string) (out [][]string) {
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); strings.HasPrefix(line, "| ") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			out = append(out, cells)
		}
	}
	return out[1:]
}

// TestReplayed: every failure of the system before is in the table, with tests that exist or a reason, and every name by which
// its operators know things is here.
func TestReplayed(t *testing.T) {
	b, err := os.ReadFile(replayed)
	if err != nil {
		t.Fatal(err)
	}
	failures, rest, _ := strings.Cut(string(b), "## Defects of the log before")
	defects, names, ok := strings.Cut(rest, "## Their names here")
	if !ok {
		t.Fatal("no defects, or no names")
	}
	tests := testFuncs(t)
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(b), -1) {
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
	checkTable(t, failures, 45, regexp.MustCompile(`^(yes|partly|no)`))
	checkTable(t, defects, 10, regexp.MustCompile(`.`))
	series, text := families(t), sources(t)
	alerting, _ := alerts(t)
	known := map[string]bool{}
	for _, a := range alerting {
		known[a.Alert] = true
	}
	for _, r := range rows(names) {
		if len(r) != 3 {
			t.Errorf("%q", r)
			continue
		}
		here := r[1] + " " + r[2]
		if strings.HasPrefix(r[1], "the same") {
			here += " " + r[0] // then the name there is one here
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(here, -1) {
			if !isThere(name[1], series, known, text) {
				t.Errorf("%s: there is no %s here", r[0], name[1])
			}
		}
	}
}

// checkTable checks that a section's table has so many numbered rows, each with an answer and a test or a reason.
func checkTable(t *testing.T, section string, count int, answer *regexp.Regexp) {
	t.Helper()
	list := rows(section)
	if len(list) != count {
		t.Errorf("%d rows, want %d", len(list), count)
	}
	for i, r := range list {
		if len(r) != 4 || r[0] != strconv.Itoa(i+1) {
			t.Errorf("row %d is %q", i+1, r)
			continue
		}
		if !answer.MatchString(r[2]) || r[3] == "" && !strings.Contains(r[2], ":") && !strings.Contains(r[2], ".") {
			t.Errorf("row %d: no answer, or neither a test nor a reason: %q", i+1, r[2])
		}
	}
}

// isThere tells whether a name is one that operators can use.
func isThere(name string, series, alerting map[string]bool, text string) bool {
	switch {
	case strings.HasSuffix(name, "*"):
		return true // it is told what became of them
	case strings.HasPrefix(name, "ehdb_"):
		return series[name] || series[name+"_bucket"]
	case strings.HasPrefix(name, "Ehdb"):
		return alerting[name]
	case strings.HasPrefix(name, "ehdbctl "):
		for _, word := range strings.Fields(name)[1:] {
			if !regexp.MustCompile(`"` + word + `[" ]`).MatchString(text) { // a command, or one of a list of them
				return false
			}
		}
		return true
	case strings.HasPrefix(name, "ehdb."): // a key
		return strings.Contains(text, "\n"+strings.TrimPrefix(name, "ehdb.")+" | ")
	case strings.Contains(name, "="): // a variable and its value
		name, _, _ = strings.Cut(name, "=")
	}
	name = strings.Trim(strings.TrimPrefix(name, "jetstream."), ".[]")
	name, _, _ = strings.Cut(name, "[")
	return strings.Contains(text, name)
}
