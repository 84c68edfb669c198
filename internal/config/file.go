package config

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
)

// token is one value of a configuration file and where it stands.
type token interface {
	Value() any
	Line() int
	Position() int
	SourceFile() string
}

// parsedFile is a configuration file as its parser sees it.
type parsedFile struct {
	root     map[string]any // by lower-case key
	warnings []string
}

// readFile reads the file at path (none: "") into o. Keys that are neither nats-server's nor ours are errors.
func readFile(path string, o *server.Options) (*parsedFile, error) {
	f := &parsedFile{root: map[string]any{}}
	if path == "" {
		return f, nil
	}
	raw, err := conf.ParseFileWithChecks(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	for k, v := range raw {
		f.root[strings.ToLower(k)] = v
	}
	err = o.ProcessConfigFile(path)
	var report interface {
		Warnings() []error
		Errors() []error
	}
	switch {
	case err == nil:
		return f, nil
	case !errors.As(err, &report):
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	for _, w := range report.Warnings() {
		f.warnings = append(f.warnings, w.Error())
	}
	return f, joined(notOwn(report.Errors(), raw))
}

// notOwn returns errs without nats-server's complaints that it does not know our blocks. It reads all other keys all
// the same, so the file is given to it as it is: includes, variables and line numbers stay what they are.
func notOwn(errs []error, raw map[string]any) []error {
	own := map[string]bool{}
	for k, v := range raw {
		tk, ok := v.(token)
		if low := strings.ToLower(k); ok && (low == "ehdb" || low == "bus") {
			own[fmt.Sprintf("%s: unknown field %q", where(tk), k)] = true
		}
	}
	var out []error
	for _, err := range errs {
		if !own[err.Error()] {
			out = append(out, err)
		}
	}
	return out
}

// where is the place of tk as nats-server writes it.
func where(tk token) string {
	return fmt.Sprintf("%s:%d:%d", tk.SourceFile(), tk.Line(), tk.Position())
}

// joined makes one error of several, in a fixed order (the parser walks maps).
func joined(errs []error) error {
	sort.SliceStable(errs, func(i, j int) bool { return errs[i].Error() < errs[j].Error() })
	return errors.Join(errs...)
}

// unwrap returns the value and the place of what the parser stored.
func unwrap(v any) (token, any) {
	if tk, ok := v.(token); ok {
		return tk, tk.Value()
	}
	return nil, v
}

// table returns v as a map by lower-case key; nil if it is none.
func table(v any) map[string]any {
	_, v = unwrap(v)
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, e := range m {
		out[strings.ToLower(k)] = e
	}
	return out
}
