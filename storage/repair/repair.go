// Package repair makes a damaged data directory one that the gateway opens again, with all that verifies. What it
// replaces is kept in the folder quarantine of the directory; nothing is ever deleted. What is lost is reported, with
// streams and sequences as far as they are known.
//
// Positions are kept: in the write-ahead log a block that is lost is replaced by one that says nothing, so that those
// behind it, the manifest's floor and the shards' positions stay what they were.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Quarantine is the folder of a data directory in which the files stand that were replaced.
const Quarantine = "quarantine"

// Options say what to repair. Zero values mean the defaults given here.
type Options struct {
	FS      vfs.FS   // default: the operating system's
	Dir     string   // the data directory
	Out     string   // leave Dir as it is and write the repaired one here, where nothing is yet
	Secrets [][]byte // that the directory may be encrypted with
	Shards  int      // number of shards, for a damaged META when no record tells it
	// Catalog is asked what the catalog (log 1) lacks when part of the write-ahead log is lost: the gateway removes
	// logs that it does not find there. It is given the entries that are left and the logs that hold records, and
	// returns entries to append, each with a line for the report. Nil: none.
	Catalog func(entries [][]byte, logs []LogInfo) []CatalogEntry
	// Progress is told what is being read or written; it may be nil.
	Progress func(file string, done int)
}

// LogInfo is a log that holds live records.
type LogInfo struct {
	ID       uint64
	Name     string
	Shards   []uint64
	LastTime int64 // Unix nanoseconds
}

// CatalogEntry is a change of the catalog.
type CatalogEntry struct {
	Entry []byte
	What  string // for the report
}

// Action is a change that was made.
type Action struct {
	File string `json:"file"` // relative to the directory
	What string `json:"what"`
}

// Report says what a repair found and did.
type Report struct {
	Dir     string            `json:"directory"` // that was repaired
	Before  []inspect.Finding `json:"found"`     // what was wrong, and what that means for which log
	Actions []Action          `json:"actions"`
	After   []inspect.Finding `json:"left"` // what is not as it should be now
}

// Changed tells whether anything was done.
func (r *Report) Changed() bool { return len(r.Actions) > 0 }

// ErrInUse is wrapped by Run's error when a process has the directory open.
var ErrInUse = errors.New("a running gateway has the directory open: stop it first")

// repairer is a repair on its way.
type repairer struct {
	o      Options
	fs     vfs.FS
	dir    string
	d      *inspect.Directory
	report *Report

	rebuilt bool            // the manifest was damaged, and is made of what is there
	adopted map[uint64]bool // parts that are in the manifest again
	box     *crypt.Keys     // what is written is encrypted with; nil: nothing is
}

// Run repairs a data directory that no process has open. A directory without damage is left as it is.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	r := &repairer{o: o, fs: o.FS, dir: o.Dir, report: &Report{Dir: o.Dir, Actions: []Action{}}}
	if err := r.read(ctx); err != nil { // also so that nothing is made in what is no data directory
		return nil, err
	}
	unlock, err := r.lock(o.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	r.report.Before = r.d.Findings
	if r.report.After = r.d.Findings; !r.d.Damaged() {
		return r.report, nil
	}
	if o.Out != "" {
		done, err := r.copyOut(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	for _, step := range []func(context.Context) error{r.locked, r.keys, r.meta, r.parts, r.wal} {
		if err := step(ctx); err != nil {
			return r.report, err
		}
	}
	if err := r.read(ctx); err != nil {
		return r.report, err
	}
	r.report.After = r.d.Findings
	return r.report, nil
}

func (r *repairer) read(ctx context.Context) (err error) {
	r.d, err = inspect.Read(ctx, inspect.Options{
		FS: r.fs, Dir: r.dir, Secrets: r.o.Secrets, Progress: r.o.Progress,
	})
	if err == nil && r.d.Keys() != nil {
		r.box, err = crypt.NewKeys(crypt.ChaCha20Poly1305, r.d.Keys().Raw()...)
	}
	return err
}

// lock takes the directory's lock, as the gateway does.
func (r *repairer) lock(dir string) (unlock func(), err error) {
	wal := path.Join(dir, inspect.WALDir)
	if err := vfs.MakeDir(r.fs, wal); err != nil {
		return nil, err
	}
	l, err := r.fs.Lock(path.Join(wal, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w (%w)", ErrInUse, err)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}

func (r *repairer) did(file, format string, args ...any) {
	r.report.Actions = append(r.report.Actions, Action{File: file, What: fmt.Sprintf(format, args...)})
}

func (r *repairer) progress(file string) {
	if r.o.Progress != nil {
		r.o.Progress(file, len(r.report.Actions))
	}
}

// copyOut copies the directory to Out, and goes on there.
func (r *repairer) copyOut(ctx context.Context) (done func(), err error) {
	out := r.o.Out
	names, err := r.fs.List(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("%s is not empty: give a directory that is not there yet", out)
	}
	for _, f := range r.d.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.Kind == "lock" || f.Kind == "spare segment" {
			continue
		}
		r.progress(f.Path)
		if err := r.copyFile(path.Join(r.dir, f.Path), path.Join(out, f.Path)); err != nil {
			return nil, err
		}
	}
	r.did(".", "copied to %s, which is repaired instead", out)
	r.dir, r.report.Dir = out, out
	unlock, err := r.lock(out)
	if err != nil {
		return nil, err
	}
	return unlock, r.read(ctx)
}

// meta writes META again if it is damaged.
func (r *repairer) meta(ctx context.Context) error {
	if r.d.Shards > 0 || !r.d.DamagedFile(inspect.MetaName) {
		return nil
	}
	n, exact := r.d.ShardsSeen()
	switch {
	case r.o.Shards > 0 && (r.o.Shards < n || exact && r.o.Shards != n):
		return fmt.Errorf("%s: there are records of %d shards, not of %d", inspect.MetaName, n, r.o.Shards)
	case r.o.Shards > 0:
		n = r.o.Shards
	case !exact:
		return fmt.Errorf("%s is damaged, and no record says how many shards there are, only that there are %d or "+
			"more: give the number with --shards (ehdb.shards of the gateway's configuration; by default the number "+
			"of cores, at most 4)", inspect.MetaName, n)
	}
	if err := r.replace(inspect.MetaName, inspect.EncodeMeta(n)); err != nil {
		return err
	}
	r.did(inspect.MetaName, "written again, for %d shards", n)
	return r.read(ctx)
}
