package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// openDir takes the directory and replays it.
func (s *Store) openDir(ctx context.Context) error {
	o := &s.opts
	t, err := tail.Open(tail.Options{
		FS: o.FS, Dir: path.Join(o.Dir, walName), SegmentSize: o.SegmentSize, Keys: s.openKeys,
		OnCut: func(file string, offset, bytes int64) {
			s.recover.cuts++
			o.Events.TailCut(file, offset, bytes)
		},
	})
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return fmt.Errorf("open data directory %s: %w", o.Dir, err)
	}
	s.release = func() error {
		if s.sealer == nil {
			return t.Close()
		}
		return errors.Join(s.sealer.close(), t.Close())
	}
	if err := s.load(ctx, t); err != nil {
		return errors.Join(fmt.Errorf("open data directory %s: %w", o.Dir, err), s.release())
	}
	return nil
}

// load reads the meta file, or makes it, and replays the tail.
func (s *Store) load(ctx context.Context, t tail.Log) error {
	shards, err := readMeta(s.opts.FS, s.opts.Dir)
	if err != nil {
		return err
	}
	fresh := shards == 0
	if fresh {
		if err := writeMeta(s.opts.FS, s.opts.Dir, s.opts.Shards); err != nil {
			return err
		}
	} else {
		s.opts.Shards = shards
	}
	s.begin(newWriter(s.opts, t))
	began := time.Now()
	r := newReplayer(s)
	if err := s.openManifest(); err != nil {
		return err
	}
	if s.sealer != nil {
		if err := r.restore(); err != nil {
			return err
		}
		s.w.space.off = true
		if f, ok := t.(interface{ Require(floor tail.LSN) }); ok {
			f.Require(r.floor)
		}
	}
	err = t.Replay(func(lsn tail.LSN, pos tail.Pos, body []byte) error {
		if fresh {
			return &CorruptError{
				Path: s.opts.Dir, Err: errors.New("there are records but no meta file"),
				Hint: "restore " + metaName + " from a backup of the same directory",
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return r.block(lsn, pos, body)
	})
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return err
	}
	if f, ok := t.(interface {
		Next() (next, durable tail.LSN)
	}); ok {
		next, _ := f.Next()
		s.w.nextLSN.Store(uint64(next))
	}
	if r.total > 0 {
		s.w.unsealed.records.Store(int64(r.total))
		s.w.unsealed.since.Store(began.UnixNano())
	}
	s.recover.persisted = r.known != nil
	s.recover.begin, s.recover.replayed = r.begin, r.counts
	for i := range s.w.shards {
		s.recover.tip = append(s.recover.tip, s.w.shards[i].head)
	}
	s.recover.seconds, s.recover.records = time.Since(began).Seconds(), r.total
	s.opts.Events.Recovered(len(s.logs)+len(s.states), r.total, s.recover.seconds)
	return nil
}

// reconfigure sets what is not persisted and counts the bytes of what is in RAM anew; parts remember theirs.
func (l *Log) reconfigure(spec LogSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configure(spec)
	l.ready = true
	for _, v := range []*view{l.head, l.vis} {
		for _, x := range v.ram() {
			x.recount(l)
		}
	}
}

// recount sets the totals of x from its records.
func (x *index) recount(l *Log) {
	x.msgs, x.bytes, x.visMsgs, x.visBytes = 0, 0, 0, 0
	for ord := x.next(0, x.end); ord < x.end; ord = x.next(ord+1, x.end) {
		size := l.sizeOf(x, ord)
		if ord < x.vis {
			x.visMsgs++
			x.visBytes += size
		}
		if x.isHeadLive(ord) {
			x.msgs++
			x.bytes += size
		}
	}
}
