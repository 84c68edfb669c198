package subjects

import (
	"fmt"
	"strings"
)

// Index holds values under filters and finds those whose filter matches a subject. A value may stand under any number
// of filters, and is then found once for each. The zero Index is empty and ready.
//
// It is a tree of tokens: finding costs the tokens of the subject, whatever the number of filters. An Index is not
// synchronised: readers may run together, a change needs it alone.
type Index[T comparable] struct {
	root    node[T]
	values  int
	filters int
}

// node stands for the tokens on the way to it.
type node[T comparable] struct {
	only    *node[T]            // the literal child, while there is just one
	onlyKey string              // its token
	more    map[string]*node[T] // the literal children, once there were two
	star    *node[T]            // the child for "*"
	exact   *set[T]             // values whose filter ends here
	tail    *set[T]             // values whose filter goes on with ">" from here
}

// Insert adds v under filter and reports whether it was not there yet. The error wraps ErrInvalidFilter.
func (x *Index[T]) Insert(filter string, v T) (added bool, err error) {
	if !ValidFilter(filter) {
		return false, fmt.Errorf("%w: %q", ErrInvalidFilter, filter)
	}
	place := x.root.place(filter)
	if *place == nil {
		*place = &set[T]{filter: filter}
		x.filters++
	}
	if !(*place).add(v) {
		return false, nil
	}
	x.values++
	return true, nil
}

// Remove takes v from under filter and reports whether it was there.
func (x *Index[T]) Remove(filter string, v T) bool {
	removed, last := x.root.remove(filter, v)
	if removed {
		x.values--
	}
	if last {
		x.filters--
	}
	return removed
}

// Len returns the number of values, each counted once for every filter it is under.
func (x *Index[T]) Len() int { return x.values }

// NumFilters returns the number of different filters.
func (x *Index[T]) NumFilters() int { return x.filters }

// place returns where the values of filter hang, making the nodes on the way.
func (n *node[T]) place(filter string) **set[T] {
	for {
		token, rest, more := strings.Cut(filter, separator)
		if token == anyTail {
			return &n.tail
		}
		n = n.grow(token)
		if !more {
			return &n.exact
		}
		filter = rest
	}
}

// remove takes v from under filter, below n, and cuts what is empty then. last: filter has no value left.
func (n *node[T]) remove(filter string, v T) (removed, last bool) {
	token, rest, more := strings.Cut(filter, separator)
	if token == anyTail && !more {
		return removeFrom(&n.tail, v)
	}
	c := n.child(token)
	if c == nil {
		return false, false
	}
	if more {
		removed, last = c.remove(rest, v)
	} else {
		removed, last = removeFrom(&c.exact, v)
	}
	if last && c.empty() {
		n.cut(token)
	}
	return removed, last
}

// removeFrom takes v from the set at place, and the set from place when it is empty.
func removeFrom[T comparable](place **set[T], v T) (removed, last bool) {
	if *place == nil || !(*place).remove(v) {
		return false, false
	}
	if len((*place).list) != 0 {
		return true, false
	}
	*place = nil
	return true, true
}

// child returns the child that a filter's token leads to, nil if there is none.
func (n *node[T]) child(token string) *node[T] {
	if token == anyToken {
		return n.star
	}
	return n.literal(token)
}

// literal returns the literal child for token, nil if there is none.
func (n *node[T]) literal(token string) *node[T] {
	if n.only != nil {
		if n.onlyKey == token {
			return n.only
		}
		return nil
	}
	return n.more[token]
}

// grow is child, but makes it.
func (n *node[T]) grow(token string) *node[T] {
	if c := n.child(token); c != nil {
		return c
	}
	c := &node[T]{}
	switch {
	case token == anyToken:
		n.star = c
	case n.only == nil && n.more == nil:
		n.only, n.onlyKey = c, token
	default:
		if n.more == nil {
			n.more = map[string]*node[T]{n.onlyKey: n.only}
			n.only, n.onlyKey = nil, ""
		}
		n.more[token] = c
	}
	return c
}

// cut drops the child for token.
func (n *node[T]) cut(token string) {
	switch {
	case token == anyToken:
		n.star = nil
	case n.only != nil:
		n.only, n.onlyKey = nil, ""
	default:
		delete(n.more, token)
		if len(n.more) == 0 {
			n.more = nil // a map keeps the room of its largest time
		}
	}
}

func (n *node[T]) empty() bool {
	return n.exact == nil && n.tail == nil && n.star == nil && n.only == nil && len(n.more) == 0
}
