package config

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func reference(t *testing.T) map[string]KeyBlock {
	t.Helper()
	blocks, err := Reference()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]KeyBlock{}
	for _, b := range blocks {
		if _, twice := out[b.Name]; twice {
			t.Errorf("[%s] is there twice", b.Name)
		}
		out[b.Name] = b
	}
	return out
}

// names are all names of a block's keys.
func (b *KeyBlock) names() map[string]bool {
	out := map[string]bool{}
	for _, k := range b.Keys {
		for _, n := range k.Names {
			out[n] = true
		}
	}
	return out
}

// Every key that our blocks know is described, and nothing else.
func TestOwnKeysAreDescribed(t *testing.T) {
	d := &decoder{known: map[string][]string{}}
	d.ehdb(map[string]any{})
	d.bus(map[string]any{})
	blocks := reference(t)
	for path, keys := range d.known {
		b := blocks[path]
		described := b.names()
		for _, k := range keys {
			if !described[k] {
				t.Errorf("%s.%s is not in keys.txt", path, k)
			}
			delete(described, k)
		}
		if len(described) > 0 {
			t.Errorf("keys.txt describes keys of %s that there are not: %v", path, slices.Sorted(maps.Keys(described)))
		}
	}
	if len(d.known) < 6 {
		t.Errorf("only the blocks %v were found", slices.Sorted(maps.Keys(d.known)))
	}
	for name, b := range blocks {
		if _, known := d.known[name]; b.own() && !known {
			t.Errorf("there is no block %s", name)
		}
	}
}

// parsers are the functions of nats-server that read the blocks of the reference. Blocks that this build leaves aside as a
// whole are not described.
var parsers = map[string][]string{
	"top level": {"processConfigFileLine"}, "jetstream": {"parseJetStream"}, "limits of jetstream": {"parseJetStreamLimits"},
	"batch": {"parseJetStreamLimitsBatch"}, "jetstream of an account": {"parseJetStreamForAccount"},
	"accounts NAME": {"parseAccounts"}, "limits of an account": {"parseAccountLimits"}, "authorization": {"parseAuthorization"},
	"a user": {"parseUsers"}, "permissions": {"parseUserPermissions"}, "publish and subscribe of permissions": {"parseSubjectPermission"},
	"allow_responses": {"parseAllowResponses"}, "auth_callout": {"parseAuthCallout"}, "an export": {"parseExportStreamOrService"},
	"an import": {"parseImportStreamOrService"}, "a destination of mappings": {"parseAccountMapDest"}, "tls": {"parseTLS"},
	"websocket": {"parseWebsocket"}, "proxies": {"parseProxies"}, "a trusted proxy": {"parseProxiesTrusted"},
}

// values are strings that those functions know and that are no keys.
var values = map[string]bool{
	"MEM": true, "MEMORY": true, "FULL": true, "CACHE": true, "url": true, "urls": true, "mode": true, "system": true, "owner": true,
	"single": true, "singleton": true, "chunk": true, "chunked": true, "auto": true, "auto_fallback": true,
	"enabled": true, "enable": true, "disabled": true, "disable": true, "true": true, "on": true, "false": true, "off": true,
}

// natsServerKeys reads the keys of each function out of nats-server's source: what its switches compare with.
func natsServersKeys(t *testing.T) map[string]map[string]bool {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "server", "opts.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]bool{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		keys := map[string]bool{}
		ast.Inspect(fn, func(n ast.Node) bool {
			c, ok := n.(*ast.CaseClause)
			if !ok {
				return true
			}
			for _, e := range c.List {
				if l, ok := e.(*ast.BasicLit); ok && l.Kind == gotoken.STRING {
					keys[strings.Trim(l.Value, `"`)] = true
				}
			}
			return true
		})
		out[fn.Name.Name] = keys
	}
	return out
}

// Every key that nats-server knows is described, in the blocks that this build serves.
func TestNatsServersKeysAreDescribed(t *testing.T) {
	theirs, blocks := natsServersKeys(t), reference(t)
	for name, functions := range parsers {
		b := blocks[name]
		described := b.names()
		for _, fn := range functions {
			if len(theirs[fn]) == 0 {
				t.Errorf("nats-server has no function %s any more", fn)
			}
			for k := range theirs[fn] {
				if !described[k] && !values[k] {
					t.Errorf("[%s] in keys.txt lacks %s", name, k)
				}
				delete(described, k)
			}
		}
		if len(described) > 0 {
			t.Errorf("[%s] in keys.txt has keys that there are not: %v", name, slices.Sorted(maps.Keys(described)))
		}
	}
	for name, b := range blocks {
		if !b.own() && parsers[name] == nil {
			t.Errorf("nothing of nats-server reads [%s]", name)
		}
	}
}

// What is refused or left aside is said of some key.
func TestWhatIsNotServedIsSaid(t *testing.T) {
	said := map[string]bool{}
	for name, b := range reference(t) {
		if path, ok := paths[name]; ok {
			for n := range b.names() {
				said[path+n] = true
			}
		}
	}
	for _, pattern := range append(slices.Clone(notServed), slices.Collect(maps.Keys(insecure))...) {
		if !said[pattern] {
			t.Errorf("%s is in served.go, and no key of keys.txt is that", pattern)
		}
	}
}

// The page is what keys.txt says, and has every block.
func TestPageIsUpToDate(t *testing.T) {
	b, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Document(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(b) {
		t.Error("docs/config.md is out of date: go generate ./internal/config")
	}
	for name, block := range reference(t) {
		place := "<!-- keys of " + name + " -->"
		if !block.own() {
			place = "<!-- keys of nats-server -->"
		}
		if !strings.Contains(want, place) {
			t.Errorf("docs/config.md has no place for the keys of %s", name)
		}
		for _, k := range block.Keys {
			if k.Meaning == "" || k.Example == "" {
				t.Errorf("%s of %s has no meaning, or no example", k.Names[0], name)
			}
		}
	}
}

// The examples are what the parsers take: no key is unknown, no value of the wrong kind.
func TestExamplesParse(t *testing.T) {
	wrap := map[string]string{
		"top level": "%", "ehdb": "ehdb { % }", "bus": "bus { % }", "jetstream": "jetstream { % }", "ehdb.feed": "ehdb { feed { % } }",
		"ehdb.upstreams.NAME": `ehdb { upstreams { hub { % } } }`, "accounts NAME": "accounts { A { % } }",
		"limits of an account": "accounts { A { limits { % } } }", "jetstream of an account": "accounts { A { jetstream { % } } }",
		"authorization": "authorization { % }", "a user": "authorization { users: [{ % }] }", "websocket": "websocket { % }",
		"limits of jetstream": "jetstream { limits { % } }", "batch": "jetstream { limits { batch { % } } }",
		"permissions": "authorization { default_permissions { % } }", "tls": "tls { % }",
		"allow_responses": "authorization { default_permissions { allow_responses { % } } }",
	}
	t.Setenv("JS_KEY", "k")
	t.Setenv("OLD_KEY", "o")
	t.Setenv("HUB_PASSWORD", "p")
	t.Setenv("HUB_TOKEN", "t")
	// What an example names and a test does not have: files, certificates, keys, the other half of a pair.
	absent := regexp.MustCompile(`no such file|…|should be .* public|not a valid public|resolver|missing|required|require|needs|without|` +
		`must be given|go together|does not exist|not a valid|not found|OCSP|not supported|error decoding|can not be|cannot be|non existing account|` +
		`but users/nkeys are not defined|no port specified|not authorized|not compatible with|invalid account JWT|Not a valid public`)
	for name, b := range reference(t) {
		for _, k := range b.Keys {
			if wrap[name] == "" {
				continue
			}
			text := strings.Replace(wrap[name], "%", strings.Trim(k.Example, "`"), 1)
			file := filepath.Join(t.TempDir(), "c.conf")
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load([]string{"-c", file, "-t", "--allow_tmp_store"}, func(string) (string, bool) { return "", false })
			if err != nil && (strings.Contains(err.Error(), "unknown field") || !absent.MatchString(err.Error())) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}
