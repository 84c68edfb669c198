package subjects

import "slices"

// setScanLimit is up to how many values a set is searched through; a larger one keeps their positions.
const setScanLimit = 24

// set is the values of one filter, in no order.
type set[T comparable] struct {
	filter string
	list   []T
	at     map[T]int // positions in list; nil while the set is small
}

// add puts v in and reports whether it was not there yet.
func (s *set[T]) add(v T) bool {
	if s.find(v) >= 0 {
		return false
	}
	s.list = append(s.list, v)
	if s.at != nil {
		s.at[v] = len(s.list) - 1
	} else if len(s.list) > setScanLimit {
		s.at = make(map[T]int, 2*setScanLimit)
		for i, v := range s.list {
			s.at[v] = i
		}
	}
	return true
}

// remove takes v out and reports whether it was there.
func (s *set[T]) remove(v T) bool {
	i := s.find(v)
	if i < 0 {
		return false
	}
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[i] = moved
	clear(s.list[last:])
	s.list = s.list[:last]
	if s.at != nil {
		s.at[moved] = i
		delete(s.at, v)
		if last < setScanLimit/2 {
			s.at = nil
		}
	}
	if cap(s.list) > 4*setScanLimit && last < cap(s.list)/4 {
		s.list = slices.Clone(s.list)
	}
	return true
}

// find returns the position of v, or -1.
func (s *set[T]) find(v T) int {
	if s.at == nil {
		return slices.Index(s.list, v)
	}
	if i, ok := s.at[v]; ok {
		return i
	}
	return -1
}

// len, each and visit take a nil set as an empty one.
func (s *set[T]) len() int {
	if s == nil {
		return 0
	}
	return len(s.list)
}

func (s *set[T]) each(fn func(T) bool) bool {
	if s == nil {
		return true
	}
	for _, v := range s.list {
		if !fn(v) {
			return false
		}
	}
	return true
}

func (s *set[T]) visit(fn func(string, T) bool) bool {
	return s.each(func(v T) bool { return fn(s.filter, v) })
}
