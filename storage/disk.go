package storage

import (
	"context"
	"errors"
)

var errNoDir = errors.New("a store on disk is not there yet")

func (s *Store) openDir(context.Context) error { return errNoDir }

// onDisk reads the bytes of a record from the tail.
func (w *writer) onDisk(r *ref) (Record, error) {
	s := w.secs.get(r.e.sec)
	b := make([]byte, r.klen+r.e.hlen+r.e.dlen)
	pos := s.pos
	pos.Offset += r.e.off
	if err := w.tail.ReadAt(b, pos); err != nil {
		return Record{}, err
	}
	return r.record(b), nil
}

// reconfigure sets what is not persisted and counts the log's bytes anew.
func (l *Log) reconfigure(spec LogSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configure(spec)
	if spec.Size == nil {
		return
	}
	for _, x := range []*index{l.head, l.vis} {
		x.bytes, x.visBytes = 0, 0
		for ord := x.next(0, x.end); ord < x.end; ord = x.next(ord+1, x.end) {
			size := l.sizeOf(x, ord)
			if ord < x.vis {
				x.visBytes += size
			}
			if x.isHeadLive(ord) {
				x.bytes += size
			}
		}
	}
}
