package part

import (
	"errors"
	"fmt"
	"slices"
)

// Input is a part to merge, and what is deleted of its sections, by log.
type Input struct {
	Reader *Reader
	Dead   map[uint64]*Tombstones
}

// MergeOptions configure Merge.
type MergeOptions struct {
	// Logs selects the logs to take; nil: all. A log to be given a file of its own is merged by itself.
	Logs func(log uint64) bool
	// Codec says how what is taken of a log is compressed; nil: as dst does it.
	Codec func(log uint64) Codec
	// Step is called after every block or so of records with what was written since: it may wait, to leave the disk to
	// others, and ends the merge with its error. Nil: never.
	Step func(bytes int64) error
}

// MergeStats says what Merge did.
type MergeStats struct {
	Records uint64 // written
	Dropped uint64 // left out, because they are deleted
}

// Merge adds to dst what is not deleted in inputs, a section for each log that has something left. Sizes are
// kept as they were counted. The inputs may
// overlap in sequences, but a sequence of a log may be in one of them only: ErrOutOfOrder. It walks one log after the
// other, needs a block of RAM for each input and about 12 bytes for each record of a log, leaves the cache as it is,
// and does not call dst.Finish. After an error dst is to be aborted.
func Merge(dst *Builder, inputs []Input, o MergeOptions) (MergeStats, error) {
	m := merger{dst: dst, o: o}
	logs, err := m.logs(inputs)
	for _, log := range logs {
		if err == nil {
			err = m.log(log, inputs)
		}
	}
	return m.stats, err
}

type merger struct {
	dst   *Builder
	o     MergeOptions
	stats MergeStats
	told  int64 // of dst.Written, to Step
}

func (m *merger) logs(inputs []Input) ([]uint64, error) {
	var all []uint64
	for _, in := range inputs {
		logs, err := in.Reader.Logs()
		if err != nil {
			return nil, err
		}
		for _, log := range logs {
			if m.o.Logs == nil || m.o.Logs(log) {
				all = append(all, log)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// log merges one log.
func (m *merger) log(log uint64, inputs []Input) error {
	heads, err := m.heads(log, inputs)
	if err != nil || len(heads) == 0 {
		return err
	}
	if err := m.dst.BeginLog(log, nil); err != nil {
		return err
	}
	if m.o.Codec != nil {
		if err := m.dst.SetCodec(m.o.Codec(log)); err != nil {
			return err
		}
	}
	for len(heads) > 0 {
		least := 0
		for i, h := range heads {
			if h.r.Seq < heads[least].r.Seq {
				least = i
			}
		}
		if err := m.add(heads[least]); err != nil {
			return err
		}
		ok, err := heads[least].next()
		if err != nil {
			return err
		}
		if !ok {
			heads = slices.Delete(heads, least, least+1)
		}
	}
	return nil
}

// heads returns the sections of a log that have something left, at their first record.
func (m *merger) heads(log uint64, inputs []Input) (heads []*mergeHead, err error) {
	for _, in := range inputs {
		s, err := in.Reader.Section(log)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		h := &mergeHead{s: s, dead: in.Dead[log]}
		m.stats.Dropped += h.dead.Count()
		ok, err := h.next()
		if err != nil {
			return nil, err
		}
		if ok {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

func (m *merger) add(h *mergeHead) error {
	if err := m.dst.addSized(&h.r, h.size); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	m.stats.Records++
	n := m.dst.Written() - m.told
	if m.o.Step == nil || n < DefaultBlockSize {
		return nil
	}
	m.told += n
	return m.o.Step(n)
}

// mergeHead walks over one input's section.
type mergeHead struct {
	s    *Section
	dead *Tombstones
	blk  int // the next data block
	d    dataBlock
	ref  blockRef
	ord  uint32 // of the next record
	left uint32 // records left in d
	pos  int
	r    Record
	size uint64
	cols columns
	page uint32 // of cols
}

// next reads the next record that is not deleted.
func (h *mergeHead) next() (bool, error) {
	for {
		if h.left == 0 {
			if h.blk == int(h.s.nData) {
				if h.ord != h.s.info.Count {
					return false, h.s.r.corrupt(h.s.off, "%d records, the head says %d", h.ord, h.s.info.Count)
				}
				return false, nil
			}
			e := h.s.dataEntry(h.blk)
			if e.firstOrd != h.ord {
				return false, h.s.corrupt(e.ref, errors.New("data block does not follow the one before it"))
			}
			var err error
			if h.d, err = h.s.dataBlock(&e, false); err != nil {
				return false, err
			}
			h.ref, h.left, h.pos = e.ref, e.count, dataFixed
			h.blk++
			continue
		}
		var err error
		if h.pos, err = h.d.at(h.pos, &h.r); err != nil {
			return false, h.s.corrupt(h.ref, err)
		}
		ord := h.ord
		h.ord++
		h.left--
		if h.dead.Contains(ord) {
			continue
		}
		return true, h.column(ord)
	}
}

// column reads the record's size.
func (h *mergeHead) column(ord uint32) error {
	if ord >= h.s.info.Count {
		return h.s.corrupt(h.ref, errData)
	}
	if i := ord / recordsPerPage; h.cols.n == 0 || h.page != i {
		var err error
		if h.cols, err = h.s.columnPage(i); err != nil {
			return err
		}
		h.page = i
	}
	h.size = h.cols.sizes.at(ord % recordsPerPage)
	return nil
}
