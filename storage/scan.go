package storage

import (
	"errors"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// Scan calls fn for the visible records from sequence from on, ascending, until fn returns false. It is for walks over
// much of a log: blocks of parts are read one after the other, once, and the cache is left as it is. A record is valid
// during the call only. Errors are those of reading a part; ErrStopped when the store is closed.
func (l *Log) Scan(from uint64, fn func(r *Record) bool) error {
	l.mu.RLock()
	views, err := snapshot(l.vis.from(from), visible)
	l.mu.RUnlock()
	if err != nil {
		return err
	}
	defer release(views)
	more := true
	for i := range views {
		v := &views[i]
		sec, err := v.section()
		if err != nil {
			return err
		}
		ord, err := sec.Lower(from)
		if err != nil {
			return err
		}
		err = sec.Scan(ord, v.dead, func(_ uint32, r *part.Record) bool {
			more = fn((*Record)(r))
			return more
		})
		if err != nil || !more {
			return err
		}
		from = max(from, v.info.LastSeq+1)
	}
	c := l.NewCursor(from, nil)
	for more {
		r, err := c.Next()
		if errors.Is(err, ErrEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		more = fn(&r)
	}
	return nil
}
