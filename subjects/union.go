package subjects

import "bytes"

// Union is filters with one prefix as one: it selects what any of them does, and finding out costs the tokens of the
// subject, whatever their number. It is immutable and safe for concurrent use.
type Union struct {
	prefix []byte
	index  Index[struct{}]
}

// NewUnion returns the union of filters, at least one, which have the same Prefix and a wildcard.
func NewUnion(filters []*Filter) (*Union, error) {
	u := &Union{prefix: filters[0].prefix}
	for _, f := range filters {
		if _, err := u.index.Insert(f.text, struct{}{}); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// Match reports whether one of the filters selects subject.
func (u *Union) Match(subject []byte) bool {
	return bytes.HasPrefix(subject, u.prefix) && wellFormed(view(subject[len(u.prefix):])) && u.index.HasMatch(subject)
}

// Prefix returns the bytes every selected subject starts with; the caller must not change them.
func (u *Union) Prefix() []byte { return u.prefix }

// Literal is false: the filters have wildcards.
func (u *Union) Literal() bool { return false }
