// Package archtest holds the module to its import diagram (docs/ARCHITECTURE.md).
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/noetl/ehdb-gateway/"

// allowed lists, for every package, the packages of this module that it may import. A trailing /... takes in the folders
// below. cmd and e2e may import everything.
var allowed = map[string][]string{
	"subjects":              nil,
	"storage/vfs":           nil,
	"storage/crypt":         {"storage/vfs"},
	"storage/tail":          {"storage/crypt", "storage/vfs"},
	"storage/part":          {"storage/crypt", "storage/vfs"},
	"storage/manifest":      {"storage/crypt", "storage/vfs"},
	"storage/inspect":       {"storage/vfs"}, // it reads what the others write, and shares none of their code
	"storage/repair":        {"storage/crypt", "storage/inspect", "storage/part", "storage/vfs"},
	"storage":               {"storage/..."},
	"gateway/wire":          nil,
	"gateway/auth":          {"subjects", "internal/bus"},
	"gateway/ws":            nil,
	"gateway":               {"gateway/wire", "gateway/ws", "gateway/auth", "internal/bus", "internal/top", "subjects"},
	"gateway/resolver":      {"gateway/auth", "internal/bus"},
	"gateway/feed":          {"gateway/auth", "subjects"},
	"gateway/monitor":       {"gateway", "internal/bus"},
	"gateway/system":        {"gateway", "gateway/monitor", "internal/bus", "subjects"},
	"internal/bus":          {"subjects"},
	"internal/bus/bustest":  {"internal/bus"},
	"internal/accounts":     {"internal/bus", "subjects"},
	"internal/config":       {"subjects", "internal/accounts", "cutover/hook", "cutover/window"},
	"internal/logging":      nil,
	"internal/metrics":      {"storage"},
	"internal/top":          nil,
	"jetstreamapi/archive":  nil,
	"jetstreamapi/jsapi":    {"subjects"},
	"jetstreamapi/stream":   {"internal/bus", "subjects", "storage", "jetstreamapi/jsapi"},
	"jetstreamapi/consumer": {"internal/bus", "subjects", "storage", "jetstreamapi/jsapi"},
	"jetstreamapi/source":   {"subjects", "storage", "internal/bus", "jetstreamapi/jsapi", "jetstreamapi/stream"},
	"jetstreamapi":          {"jetstreamapi/...", "internal/bus", "subjects", "storage", "cutover"}, // it implements cutover.Local
	"deploy":                nil,                                                                    // tests of files
	"examples/autoscale":    nil,                                                                    // examples are clients
	"examples/feed":         nil,
	"examples/kv":           nil,
	"examples/objects":      nil,
	"examples/propagation":  nil,
	"examples/pubsub":       nil,
	"examples/workqueue":    nil,
	"cutover/upstream":      {"gateway/wire"},
	"cutover":               nil, // the words its parts share
	"cutover/hook":          nil,
	"cutover/window":        nil,
	"cutover/keda":          nil,
	"cutover/origin":        {"cutover"},
	"cutover/capture":       {"cutover", "subjects"},
	"cutover/parity":        {"cutover", "subjects"},
	"cutover/probe":         {"cutover/parity", "internal/bus"},
	"cutover/relay":         {"cutover", "gateway", "internal/bus", "jetstreamapi/jsapi", "subjects"},
	"cutover/reverse":       {"cutover", "subjects"},
	"cutover/lease":         {"cutover"},
	"cutover/flip":          {"cutover", "cutover/relay", "cutover/reverse", "internal/bus", "jetstreamapi/jsapi", "subjects"},
	"cutover/gate":          {"cutover", "cutover/parity"},
	"cutover/drill":         {"cutover"},
	"cutover/drill/load":    {"cutover/drill"},
	"cutover/face":          {"cutover", "cutover/..."},
	"cutover/console":       {"cutover", "cutover/face", "cutover/gate", "cutover/parity"},
	"cutover/visit":         {"cutover", "cutover/origin", "gateway/auth", "gateway/feed", "subjects"},
	"cutover/pilot":         {"cutover", "cutover/...", "internal/bus"},
}

// violations returns what the packages described by list (the output of go list -json) break.
func violations(list io.Reader) ([]string, error) {
	var out []string
	for dec := json.NewDecoder(list); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		from := strings.TrimPrefix(p.ImportPath, module)
		if free(from) {
			continue
		}
		list, known := allowed[from]
		if !known {
			out = append(out, from+" is not in the diagram: add it to allowed and to docs/ARCHITECTURE.md")
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && !permits(list, to) {
				out = append(out, from+" must not import "+to)
			}
		}
	}
}

// free tells the packages that may import anything.
func free(pkg string) bool {
	for _, dir := range []string{"cmd/", "e2e", "scripts/", "internal/archtest"} {
		if strings.HasPrefix(pkg, dir) {
			return true
		}
	}
	return false
}

func permits(list []string, to string) bool {
	for _, l := range list {
		if dir, ok := strings.CutSuffix(l, "/..."); l == to || ok && strings.HasPrefix(to, dir+"/") {
			return true
		}
	}
	return false
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	found, err := violations(strings.NewReader(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// The check must be able to fail.
func TestViolationsAreFound(t *testing.T) {
	found, err := violations(strings.NewReader(`
		{"ImportPath": "` + module + `storage", "Imports": ["` + module + `subjects"]}
		{"ImportPath": "` + module + `newcomer", "Imports": ["fmt"]}
		{"ImportPath": "` + module + `gateway", "Imports": ["` + module + `subjects"]}`))
	if err != nil || len(found) != 2 {
		t.Fatalf("want two violations, got %q (%v)", found, err)
	}
}
