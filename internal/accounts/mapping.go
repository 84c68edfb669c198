package accounts

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// mapper is one mapping, ready for use.
type mapper struct {
	filter *subjects.Filter
	to     []weighted // by growing sum
}

// weighted is a destination that a number up to sum leads to.
type weighted struct {
	sum       int
	literal   []byte // nil: transform
	transform func(string) string
}

// allOfIt is the sum of the weights of a mapping, in per cent.
const allOfIt = 100

// newMapper makes a mapping ready for a server in cluster (may be empty). Its destinations are those of the cluster, if
// it has some. What their weights leave stays as it is, unless a destination names the subject itself: then it is lost.
func newMapper(m *Mapping, cluster string) (*mapper, error) {
	filter, err := subjects.Compile(m.Subject)
	if err != nil {
		return nil, err
	}
	here := func(d Destination) bool { return cluster != "" && d.Cluster == cluster }
	own := slices.ContainsFunc(m.Destinations, here)
	out, sum, keeps := &mapper{filter: filter}, 0, false
	byWeight := func(a, b Destination) int { return cmp.Compare(a.Weight, b.Weight) }
	list := slices.SortedFunc(slices.Values(m.Destinations), byWeight)
	for _, d := range list {
		keeps = keeps || d.Subject == m.Subject
		if own && !here(d) || !own && d.Cluster != "" {
			continue
		}
		sum += d.Weight
		if err := out.add(m.Subject, d.Subject, sum); err != nil {
			return nil, err
		}
	}
	if sum < allOfIt && !keeps {
		if err := out.add(m.Subject, numbered(m.Subject), allOfIt); err != nil {
			return nil, err
		}
	}
	if sum > allOfIt {
		return nil, fmt.Errorf("mapping of %q: total weight needs to be <= 100", m.Subject)
	}
	return out, nil
}

func (m *mapper) add(from, to string, sum int) error {
	if to == "" {
		return fmt.Errorf("mapping from %q has an empty destination", from)
	}
	if err := server.ValidateMapping(from, to); err != nil {
		return fmt.Errorf("mapping from %q to %q: %w", from, to, err)
	}
	tr, err := server.NewSubjectTransform(from, to)
	if err != nil {
		return fmt.Errorf("mapping from %q to %q: %w", from, to, err)
	}
	w := weighted{sum: sum, transform: tr.TransformSubject}
	if subjects.ValidLiteral(to) && !slices.Contains([]byte(to), '$') && !slices.Contains([]byte(to), '{') {
		w.literal = []byte(to)
	}
	m.to = append(m.to, w)
	return nil
}

// apply returns what subject becomes, nil if it is lost.
func (m *mapper) apply(subject []byte) (to []byte, changed bool) {
	at := 0
	if len(m.to) != 1 || m.to[0].sum != allOfIt {
		at = rand.IntN(allOfIt) //nolint:gosec // spreads load
	}
	for i := range m.to {
		w := &m.to[i]
		switch {
		case at >= w.sum:
		case w.literal != nil:
			return w.literal, true
		default:
			return []byte(w.transform(string(subject))), true
		}
	}
	return nil, true
}

// mapperOf returns what renames subjects as list says, nil if it is empty. A subject that several mappings select is
// renamed by that of its very name, else by the narrowest.
func mapperOf(list []Mapping, cluster string) (func([]byte) ([]byte, bool), error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // nothing to rename
	}
	literal, wild := make(map[string]*mapper), []*mapper(nil)
	for i := range list {
		m, err := newMapper(&list[i], cluster)
		if err != nil {
			return nil, err
		}
		if m.filter.Literal() {
			literal[m.filter.String()] = m
			continue
		}
		at := slices.IndexFunc(wild, func(w *mapper) bool {
			return subjects.SubsetOf(m.filter.String(), w.filter.String())
		})
		if at < 0 {
			at = len(wild)
		}
		wild = slices.Insert(wild, at, m)
	}
	return func(subject []byte) ([]byte, bool) {
		if m := literal[string(subject)]; m != nil {
			return m.apply(subject)
		}
		for _, m := range wild {
			if m.filter.Match(subject) {
				return m.apply(subject)
			}
		}
		return subject, false
	}, nil
}
