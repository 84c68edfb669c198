package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// long stands for a long text: %{x*3} is xxx.
var long = regexp.MustCompile(`%\{([^*]*)\*(\d+)\}`)

// TestInventory plays the scripts of testdata/inventory, one for each statement about the protocol that clients build on, on
// nats-server and on the gateway: every byte that clients get must be equal, and why and when connections end. A script is a name after "## ", options (lines that begin with "conf: "), and steps as in
// script, with Go's escapes.
func TestInventory(t *testing.T) {
	paths, err := filepath.Glob("testdata/inventory/*.txt")
	check(t, err)
	if len(paths) == 0 {
		t.Fatal("no scripts")
	}
	var scripts []script
	for _, path := range paths {
		b, err := os.ReadFile(path)
		check(t, err)
		for _, section := range strings.Split("\n"+string(b), "\n## ")[1:] {
			sc := inventoryScript(t, section)
			sc.name = strings.TrimSuffix(filepath.Base(path), ".txt") + "/" + sc.name
			scripts = append(scripts, inPieces(sc)...)
		}
	}
	runScripts(t, scripts, both)
}

// inPieces splits a long script in which each step is a connection of its own: they are played side by side.
func inPieces(sc script) []script {
	const most = 6
	conns := map[string]bool{}
	for _, step := range sc.steps {
		name, _, _ := strings.Cut(step, "<")
		conns[name] = true
	}
	if len(conns) < len(sc.steps) {
		return []script{sc}
	}
	var out []script
	for steps := range slices.Chunk(sc.steps, most) {
		out = append(out, script{name: fmt.Sprintf("%s %d", sc.name, len(out)), opts: sc.opts, steps: steps})
	}
	return out
}

func inventoryScript(t *testing.T, section string) script {
	t.Helper()
	name, text, _ := strings.Cut(section, "\n")
	sc := script{name: name}
	var conf strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if c, ok := strings.CutPrefix(line, "conf: "); ok {
			conf.WriteString(c + "\n")
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		step, err := strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`)
		if err != nil {
			t.Fatalf("%s: %s: %v", name, line, err)
		}
		sc.steps = append(sc.steps, long.ReplaceAllStringFunc(step, func(s string) string {
			m := long.FindStringSubmatch(s)
			n, _ := strconv.Atoi(m[2]) // digits
			return strings.Repeat(m[1], n)
		}))
	}
	if conf.Len() > 0 {
		sc.opts = config(t, conf.String())
	} else {
		sc.opts = func() *server.Options { return &server.Options{} }
	}
	return sc
}
