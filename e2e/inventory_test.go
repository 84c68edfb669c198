package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inventoryLong stands for a long string: %{x*3} is xxx.
var inventoryLong = regexp.MustCompile(`%\{(.)\*(\d+)\}`)

// TestInventory plays the scripts of testdata/inventory on nats-server and on the gateway. There is one for each statement
// about JetStream that clients build on, by sections: all lines of all of them must have equal answers, and what comes
// must be equal. Unlike the scripts of TestDifferential they go on after a difference.
func TestInventory(t *testing.T) {
	paths, err := filepath.Glob("testdata/inventory/*.txt")
	noErr(t, err)
	if len(paths) == 0 {
		t.Fatal("no scripts")
	}
	sides := newDiffSides(t)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		noErr(t, err)
		for _, section := range strings.Split("\n"+string(b), "\n## ")[1:] {
			name, text, _ := strings.Cut(section, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+name, func(t *testing.T) {
				playInventory(t, sides, inventoryScript(text))
			})
		}
	}
}

// inventoryScript returns the lines of a section without its comments.
func inventoryScript(text string) (out []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		out = append(out, inventoryLong.ReplaceAllStringFunc(line, func(s string) string {
			m := inventoryLong.FindStringSubmatch(s)
			n, err := strconv.Atoi(m[2])
			if err != nil {
				panic(err) // the script's
			}
			return strings.Repeat(m[1], n)
		}))
	}
	return append(out, "check")
}

func playInventory(t *testing.T, sides [2]*diffSide, script []string) {
	t.Helper()
	p := &diffPlayer{sides: sides, settle: 10 * time.Millisecond, patience: diffPatience, clock: newDiffClock(nil)}
	for _, s := range sides {
		noErr(t, s.open())
		defer s.close()
	}
	for i, line := range script {
		p.copies = p.copies || diffCopies(line)
		d := p.inventoryLine(line)
		if d == nil {
			continue
		}
		d.at, d.line = i, fmt.Sprintf("%.300s", line)
		t.Error(d)
		for _, s := range sides {
			s.forget()
		}
	}
}

func (p *diffPlayer) inventoryLine(line string) *difference {
	rest, differs := strings.CutPrefix(line, "!")
	if !differs {
		return p.step(line)
	}
	word, line, _ := strings.Cut(rest, " ")
	out := p.both(line)
	if strings.Contains(out[1], word) && !strings.Contains(out[0], word) {
		time.Sleep(100 * time.Millisecond)
		for _, s := range p.sides {
			s.forget() // what comes differs, too
		}
		return nil
	}
	return &difference{what: "answer", want: out[0], got: out[1] + " (with " + word + ")"}
}
