package storage

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// writeParts writes the parts of a seal, one for each shard that has something.
func (sl *sealer) writeParts(jobs []sealJob, pace func(int64) error) (parts []*sealedPart, err error) {
	for shard := range sl.s.w.shards {
		var mine []*sealJob
		for i := range jobs {
			if j := &jobs[i]; j.x != nil && j.l.meta.Shards[0] == ShardID(shard) {
				mine = append(mine, j)
			}
		}
		if len(mine) == 0 {
			continue
		}
		p, err := sl.writePart(ShardID(shard), mine, pace)
		if err != nil {
			return parts, err
		}
		if p != nil {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

func (sl *sealer) writePart(shard ShardID, jobs []*sealJob, pace func(int64) error) (*sealedPart, error) {
	b, err := sl.create(shard)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if err := j.write(b, pace); err != nil {
			return nil, errors.Join(err, b.Abort())
		}
	}
	p, err := sl.finish(b, shard, 0)
	if err != nil || p == nil {
		return nil, err
	}
	for _, run := range p.runs {
		for _, j := range jobs {
			if uint64(j.l.meta.ID) == run.info.Log {
				j.found = run
			}
		}
	}
	return p, nil
}

func (sl *sealer) create(shard ShardID) (*part.Builder, error) {
	o := &sl.s.opts
	return part.Create(o.FS, path.Join(o.Dir, partsDir), part.Options{
		Shard: uint32(shard), Created: time.Now().UnixNano(), Keys: sl.s.keys, SyncEvery: syncEvery,
	})
}

// finish makes a part durable and opens it; nil if there is nothing in it. age is that of the oldest it was merged
// from, 0 if it is new.
func (sl *sealer) finish(b *part.Builder, shard ShardID, age uint64) (*sealedPart, error) {
	info, err := b.Finish()
	if err != nil {
		return nil, errors.Join(err, b.Abort())
	}
	if info.Records == 0 {
		return nil, b.Abort()
	}
	p := &sealedPart{id: sl.man.NewPart(), shard: shard, size: info.Size}
	if age == 0 {
		age = uint64(p.id)
	}
	name := part.Name(age, info.ID)
	if err := b.Commit(name); err != nil {
		return nil, errors.Join(err, b.Abort())
	}
	p.path = path.Join(partsDir, name)
	if p.r, err = sl.open(p.path); err != nil {
		return nil, err // the file is an orphan, which the next open of the directory puts aside
	}
	p.refs.Store(1)
	for _, sec := range info.Sections {
		p.runs = append(p.runs, newSealed(p, sec))
	}
	return p, nil
}

func (sl *sealer) open(name string) (*part.Reader, error) {
	o := &sl.s.opts
	return part.Open(o.FS, path.Join(o.Dir, name), part.ReadOptions{Cache: sl.cache, Keys: sl.s.keys})
}

func newSealed(p *sealedPart, info part.SectionInfo) *sealed {
	s := &sealed{p: p, info: info}
	for _, d := range []*deaths{&s.head, &s.vis} {
		d.msgs, d.bytes = uint64(info.Count), info.Bytes
	}
	return s
}

// write adds a log's section to a part.
func (j *sealJob) write(b *part.Builder, pace func(int64) error) error {
	l, x := j.l, j.x
	l.mu.RLock()
	size := l.size
	j.first, j.left = x.start(), &part.Tombstones{}
	l.mu.RUnlock()
	if err := b.BeginLog(uint64(l.meta.ID), part.SizeFunc(size)); err != nil {
		return err
	}
	if err := b.SetCodec(l.codec()); err != nil {
		return err
	}
	var (
		refs  []ref
		recs  []Record
		ahead readAhead
	)
	for ord := j.first; ord < x.end; {
		l.mu.RLock()
		refs, recs, ord = l.copyOut(j, ord, refs[:0], recs[:0])
		l.mu.RUnlock()
		before := b.Written()
		for i := range refs {
			r := &recs[i]
			if r.Seq == 0 {
				read, err := ahead.read(l.w.tail, &refs[i])
				if err != nil {
					return err
				}
				*r = read
			}
			pr := part.Record(*r)
			if err := b.Add(&pr); err != nil {
				return fmt.Errorf("log %d, record %d: %w", l.meta.ID, r.Seq, err)
			}
		}
		if err := pace(b.Written() - before); err != nil {
			return err
		}
	}
	return nil
}

// copyOut returns the next records from ord on, those whose bytes are not in RAM with sequence 0, and where to go on.
// The lock is held.
func (l *Log) copyOut(j *sealJob, ord uint64, refs []ref, recs []Record) ([]ref, []Record, uint64) {
	const batch = 512
	x := j.x
	limit := min(ord+batch, x.end)
	for from := ord; ; {
		ord = x.next(from, limit)
		if ord > from {
			j.left.AddRange(uint32(from-j.first), uint32(ord-j.first))
		}
		if ord == limit {
			return refs, recs, limit
		}
		r := x.ref(ord)
		rec, _ := l.w.inRAM(&r)
		refs, recs = append(refs, r), append(recs, rec)
		from = ord + 1
	}
}
