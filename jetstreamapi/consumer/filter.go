package consumer

import (
	"fmt"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// filterSet is the compiled filters of a consumer; empty: everything.
type filterSet []storage.Filter

func compileFilters(texts []string) (filterSet, error) {
	set := make(filterSet, 0, len(texts))
	for _, t := range texts {
		f, err := subjects.Compile(t)
		if err != nil {
			return nil, fmt.Errorf("filter subject %q: %w", t, err)
		}
		set = append(set, f)
	}
	return set, nil
}

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
