package config

import (
	"fmt"
	"slices"
	"strings"
)

// decoder reads our blocks and collects every complaint, so that one start names them all.
type decoder struct {
	errs  []error
	known map[string][]string // nil, or: blocks are not read, but their keys noted by path; for the reference
}

func (d *decoder) err() error { return joined(d.errs) }

func (d *decoder) errorf(tk token, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if tk != nil {
		err = fmt.Errorf("%s: %w", where(tk), err)
	}
	d.errs = append(d.errs, err)
}

// field is one key of a block on its way to its setter.
type field struct {
	d    *decoder
	tk   token
	path string
	val  any
}

// block calls the setter of each key of v, a block called path. A nil v is an absent block.
func (d *decoder) block(path string, v any, keys map[string]func(field)) {
	if v == nil {
		return
	}
	if d.known != nil {
		d.note(path, keys)
		return
	}
	tk, raw := unwrap(v)
	m, ok := raw.(map[string]any)
	if !ok {
		d.errorf(tk, "%s: expected a block { ... }, got %v", path, raw)
		return
	}
	for k, e := range m {
		etk, val := unwrap(e)
		set, known := keys[strings.ToLower(k)]
		if !known {
			d.errorf(etk, "unknown field %q (known in %s: %s)", path+"."+k, path, names(keys))
			continue
		}
		set(field{d: d, tk: etk, path: path + "." + k, val: val})
	}
}

// note notes the keys of a block and of those inside it: what takes a block, a block of named ones or a list of them
// calls block.
func (d *decoder) note(path string, keys map[string]func(field)) {
	path = strings.TrimSuffix(path, "[0]")
	if d.known[path] != nil {
		return
	}
	for k := range keys {
		d.known[path] = append(d.known[path], k)
	}
	empty := map[string]any{}
	for k, set := range keys {
		for _, val := range []any{empty, map[string]any{"NAME": empty}, []any{empty}} {
			set(field{d: d, path: path + "." + k, val: val})
		}
	}
}

func names(keys map[string]func(field)) string {
	out := make([]string, 0, len(keys))
	for k := range keys {
		out = append(out, k)
	}
	return listed(out)
}

func (f field) errorf(format string, args ...any) {
	f.d.errorf(f.tk, "%s: "+format, append([]any{f.path}, args...)...)
}

// text takes a string, one of choices if there are any.
func (f field) text(to *string, choices ...string) {
	s, ok := f.val.(string)
	switch {
	case !ok:
		f.errorf("expected a string, got %v", f.val)
	case len(choices) > 0 && !slices.Contains(choices, strings.ToLower(s)):
		f.errorf("%q is not one of %s", s, strings.Join(choices, ", "))
	default:
		*to = s
	}
}

func (f field) boolean(to *bool) {
	b, ok := f.val.(bool)
	if !ok {
		f.errorf("expected true or false, got %v", f.val)
		return
	}
	*to = b
}

// number takes an integer from low to high; unit is for the complaint.
func (f field) number(low, high int64, unit string) (int64, bool) {
	n, ok := f.val.(int64)
	if !ok {
		f.errorf("expected %s, got %v", unit, f.val)
		return 0, false
	}
	if n < low || n > high {
		f.errorf("%d is not between %d and %d", n, low, high)
		return 0, false
	}
	return n, true
}

// list returns the elements of an array; a single value is a list of one.
func (f field) list() []field {
	arr, ok := f.val.([]any)
	if !ok {
		return []field{f}
	}
	out := make([]field, len(arr))
	for i, e := range arr {
		tk, val := unwrap(e)
		if tk == nil {
			tk = f.tk
		}
		out[i] = field{d: f.d, tk: tk, path: fmt.Sprintf("%s[%d]", f.path, i), val: val}
	}
	return out
}
