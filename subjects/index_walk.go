package subjects

import "strings"

// AppendMatch appends the values whose filter matches subject to dst and returns it.
func (x *Index[T]) AppendMatch(dst []T, subject []byte) []T {
	s := view(subject)
	if !wellFormed(s) {
		return dst
	}
	return x.root.appendMatch(dst, s)
}

// Match calls fn for each value whose filter matches subject until fn returns false. fn must not change the Index.
func (x *Index[T]) Match(subject []byte, fn func(v T) bool) {
	if s := view(subject); wellFormed(s) {
		x.root.each(s, fn)
	}
}

// HasMatch reports whether there is a value whose filter matches subject.
func (x *Index[T]) HasMatch(subject []byte) bool {
	s := view(subject)
	return wellFormed(s) && x.root.hasMatch(s)
}

// CountMatch returns how many values have a filter that matches subject.
func (x *Index[T]) CountMatch(subject []byte) int {
	s := view(subject)
	if !wellFormed(s) {
		return 0
	}
	return x.root.countMatch(s)
}

// Overlapping calls fn for each value whose filter has a subject in common with filter, until fn returns false. fn must
// not change the Index.
func (x *Index[T]) Overlapping(filter string, fn func(filter string, v T) bool) {
	if wellFormed(filter) {
		x.root.overlapping(filter, fn)
	}
}

// Covering calls fn for each value whose filter selects everything that filter selects, until fn returns false. fn must
// not change the Index.
func (x *Index[T]) Covering(filter string, fn func(filter string, v T) bool) {
	if wellFormed(filter) {
		x.root.covering(filter, fn)
	}
}

// Each calls fn for each filter and value until fn returns false. fn must not change the Index.
func (x *Index[T]) Each(fn func(filter string, v T) bool) { x.root.all(fn) }

func (n *node[T]) appendMatch(dst []T, subject string) []T {
	if n.tail != nil {
		dst = append(dst, n.tail.list...)
	}
	token, rest, more := strings.Cut(subject, separator)
	for _, c := range [2]*node[T]{n.literal(token), n.star} {
		switch {
		case c == nil:
		case more:
			dst = c.appendMatch(dst, rest)
		case c.exact != nil:
			dst = append(dst, c.exact.list...)
		}
	}
	return dst
}

// each returns false when fn did.
func (n *node[T]) each(subject string, fn func(v T) bool) bool {
	if !n.tail.each(fn) {
		return false
	}
	token, rest, more := strings.Cut(subject, separator)
	for _, c := range [2]*node[T]{n.literal(token), n.star} {
		switch {
		case c == nil:
		case more:
			if !c.each(rest, fn) {
				return false
			}
		case !c.exact.each(fn):
			return false
		}
	}
	return true
}

func (n *node[T]) hasMatch(subject string) bool {
	if n.tail != nil {
		return true
	}
	token, rest, more := strings.Cut(subject, separator)
	for _, c := range [2]*node[T]{n.literal(token), n.star} {
		if c != nil && ((more && c.hasMatch(rest)) || (!more && c.exact != nil)) {
			return true
		}
	}
	return false
}

func (n *node[T]) countMatch(subject string) int {
	count := n.tail.len()
	token, rest, more := strings.Cut(subject, separator)
	for _, c := range [2]*node[T]{n.literal(token), n.star} {
		switch {
		case c == nil:
		case more:
			count += c.countMatch(rest)
		default:
			count += c.exact.len()
		}
	}
	return count
}

// overlapping returns false when fn did; so do the walks below.
func (n *node[T]) overlapping(filter string, fn func(string, T) bool) bool {
	token, rest, more := strings.Cut(filter, separator)
	if token == anyTail && !more {
		return n.below(fn)
	}
	if !n.tail.visit(fn) {
		return false
	}
	down := func(c *node[T]) bool {
		if c == nil {
			return true
		}
		if more {
			return c.overlapping(rest, fn)
		}
		return c.exact.visit(fn)
	}
	if token == anyToken {
		return n.children(down)
	}
	return down(n.literal(token)) && down(n.star)
}

func (n *node[T]) covering(filter string, fn func(string, T) bool) bool {
	if !n.tail.visit(fn) {
		return false
	}
	token, rest, more := strings.Cut(filter, separator)
	if token == anyTail && !more {
		return true
	}
	// For the token "*" both of these are the star child, or literal has nothing: "*" is no literal token.
	for _, c := range [2]*node[T]{n.literal(token), n.star} {
		switch {
		case c == nil:
		case more:
			if !c.covering(rest, fn) {
				return false
			}
		case !c.exact.visit(fn):
			return false
		}
	}
	return true
}

// all visits n and what is below it.
func (n *node[T]) all(fn func(string, T) bool) bool { return n.exact.visit(fn) && n.below(fn) }

// below visits the filters that go on from n.
func (n *node[T]) below(fn func(string, T) bool) bool {
	return n.tail.visit(fn) && n.children(func(c *node[T]) bool { return c.all(fn) })
}

// children calls fn for each child until it returns false.
func (n *node[T]) children(fn func(*node[T]) bool) bool {
	if n.only != nil && !fn(n.only) {
		return false
	}
	for _, c := range n.more {
		if !fn(c) {
			return false
		}
	}
	return n.star == nil || fn(n.star)
}
