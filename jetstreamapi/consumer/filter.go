package consumer

import (
	"fmt"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// filterSet is the compiled filters of a consumer; empty: everything.
type filterSet []storage.Filter

// CompileFilters prepares the filters of a consumer or a reader. Those with a wildcard and the same prefix become one:
// the keys of a part, and every new key, are then looked at once and not once for each of them.
func CompileFilters(texts []string) ([]storage.Filter, error) {
	set := make([]storage.Filter, 0, len(texts))
	alike := map[string][]*subjects.Filter{}
	for _, t := range texts {
		f, err := subjects.Compile(t)
		if err != nil {
			return nil, fmt.Errorf("filter subject %q: %w", t, err)
		}
		if f.Literal() {
			set = append(set, f)
		} else {
			alike[string(f.Prefix())] = append(alike[string(f.Prefix())], f)
		}
	}
	for _, filters := range alike {
		if len(filters) == 1 {
			set = append(set, filters[0])
			continue
		}
		u, err := subjects.NewUnion(filters)
		if err != nil {
			return nil, err
		}
		set = append(set, u)
	}
	return set, nil
}

func compileFilters(texts []string) (filterSet, error) { return CompileFilters(texts) }

func (s filterSet) match(key []byte) bool {
	for _, f := range s {
		if f.Match(key) {
			return true
		}
	}
	return len(s) == 0
}

// logWorld is the world of a running consumer.
type logWorld struct {
	*storage.Cursor
	log     *storage.Log
	bus     bus.Bus
	account string
	filters func(filterSet) // told when they change
}

func (w *logWorld) Get(seq uint64) (storage.Record, error) { return w.log.Get(seq) }

func (w *logWorld) Visible() uint64 { return w.log.Visible() }

// Exists is one look: between two, messages come and go, and one that is there would be taken for gone.
func (w *logWorld) Exists(seq uint64) bool { return w.log.NewSubset([]uint64{seq}).Len() == 1 }

func (w *logWorld) Subset(seqs []uint64) *storage.Subset { return w.log.NewSubset(seqs) }

func (w *logWorld) Removals() uint64 {
	s := w.log.VisibleState()
	return s.LastSeq - s.Messages
}

func (w *logWorld) Interest(subject string) bool { return w.bus.HasInterest(w.account, subject) }

func (w *logWorld) Listens(subject, queue string) bool {
	return w.bus.Listens(w.account, subject, queue)
}

func (w *logWorld) Refilter(from uint64, texts []string) error {
	set, err := compileFilters(texts)
	if err != nil {
		return err
	}
	w.Cursor = w.log.NewCursor(from, set)
	w.filters(set)
	return nil
}
