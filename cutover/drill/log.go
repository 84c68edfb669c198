package drill

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// FileName is the file of the exercises in the journal's folder.
const FileName = "drills.json"

// MaxTime is how long an exercise may run; then it has failed.
const MaxTime = 10 * time.Minute

// keptOfKind is how many exercises of each kind are kept.
const keptOfKind = 20

// Errors of a Log.
var (
	ErrRunning = errors.New("another drill is running")
	ErrNone    = errors.New("no such drill")
)

// Log are the exercises of a data directory. Each change is durable when the call returns. Safe for concurrent use.
type Log struct {
	dir string

	told func(Drill) // of each that begins or ends; nil: nobody is
	cut  []Drill     // those that the end of a process has interrupted, until somebody is told

	mu   sync.Mutex
	last uint64 // the highest id
	list []Drill
}

// document is the file.
type document struct {
	Last   uint64  `json:"last_id"`
	Drills []Drill `json:"drills"`
}

// OpenLog reads the exercises in dir. A file that cannot be read is put aside, which err says: then there is no
// evidence, and the Log is to be used all the same. Exercises that the end of the process has interrupted have failed;
// those that were to end it wait for their account.
func OpenLog(dir string) (l *Log, err error) {
	l = &Log{dir: dir}
	data, err := os.ReadFile(l.path()) //nolint:gosec // the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	var doc document
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil {
		aside := l.path() + ".damaged"
		return l, errors.Join(fmt.Errorf("%s cannot be read and is called %s from now on; the drills in it do not "+
			"count: %w", l.path(), aside, err), os.Rename(l.path(), aside))
	}
	l.last, l.list = doc.Last, doc.Drills
	for i := range l.list {
		if d := &l.list[i]; d.State == Running && (d.Kind != KillGateway || d.Step != Broken) {
			d.end(Failed, "the gateway ended in the middle")
			l.cut = append(l.cut, *d)
		}
	}
	return l, l.save()
}

// Tell has f told of each exercise that begins or has ended, those included that had failed when the Log was opened. It
// is to be called once, before there are others.
func (l *Log) Tell(f func(Drill)) {
	l.told = f
	for i := range l.cut {
		f(l.cut[i])
	}
	l.cut = nil
}

func (l *Log) tell(d *Drill) {
	if l.told != nil {
		l.told(*d)
	}
}

func (l *Log) path() string { return filepath.Join(l.dir, FileName) }

// end closes an exercise.
func (d *Drill) end(s State, result string) {
	d.State, d.Result, d.Step, d.Ended = s, result, "", time.Now().UTC()
	d.Expires = d.Ended.Add(Valid(d.Kind))
}

// Begin adds an exercise and gives it its id: ErrRunning if there is one that has not ended.
func (l *Log) Begin(d Drill) (Drill, error) { //nolint:gocritic // the caller's stays as it is
	begun, err := l.begin(d)
	if err == nil {
		l.tell(&begun)
	}
	return begun, err
}

func (l *Log) begin(d Drill) (Drill, error) { //nolint:gocritic // as Begin
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if r := &l.list[i]; r.State == Running {
			return Drill{}, fmt.Errorf("%w: %d, %s, by %s: wait for its end, or: ehdbctl drill abandon %d",
				ErrRunning, r.ID, r.Kind, r.By, r.ID)
		}
	}
	was, list := l.last, l.list
	l.last++
	d.ID, d.State, d.Step, d.Started = l.last, Running, Preparing, time.Now().UTC()
	l.list = trim(append(slices.Clone(l.list), d))
	if err := l.save(); err != nil {
		l.last, l.list = was, list
		return Drill{}, err
	}
	return d, nil
}

// trim leaves out the oldest of kinds of which there are more than are kept.
func trim(list []Drill) []Drill {
	more := make(map[string]int)
	for i := range list {
		more[list[i].Kind]++
	}
	return slices.DeleteFunc(list, func(d Drill) bool {
		if more[d.Kind] <= keptOfKind || !d.Tidied {
			return false
		}
		more[d.Kind]--
		return true
	})
}

// Change changes an exercise. With an error from change, or of the disk, it stays as it was.
func (l *Log) Change(id uint64, change func(*Drill) error) (Drill, error) {
	var ended bool
	d, err := l.change(id, func(d *Drill) error {
		running := d.State == Running
		err := change(d)
		ended = running && d.State != Running
		return err
	})
	if err == nil && ended {
		l.tell(&d)
	}
	return d, err
}

func (l *Log) change(id uint64, change func(*Drill) error) (Drill, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].ID != id {
			continue
		}
		was := l.list[i]
		if err := change(&l.list[i]); err != nil {
			l.list[i] = was
			return was, err
		}
		if err := l.save(); err != nil {
			l.list[i] = was
			return was, err
		}
		return l.list[i], nil
	}
	return Drill{}, fmt.Errorf("%w: %d", ErrNone, id)
}

// End closes an exercise that runs; one that has ended stays as it is.
func (l *Log) End(id uint64, s State, result string) (Drill, error) {
	return l.Change(id, func(d *Drill) error {
		if d.State == Running {
			d.end(s, result)
		}
		return nil
	})
}

// Close closes an exercise with a load as it is judged.
func (l *Log) Close(id uint64, limits Limits) (Drill, error) {
	return l.Change(id, func(d *Drill) error {
		if d.State == Running {
			d.Judge(limits)
			d.end(d.State, d.Result)
		}
		return nil
	})
}

// Overdue closes exercises that have run for too long.
func (l *Log) Overdue(now time.Time) error {
	for _, d := range l.List() {
		if d.State != Running || now.Sub(d.Started) < MaxTime {
			continue
		}
		why := fmt.Sprintf("it did not end within %v", MaxTime)
		if d.Step == Broken {
			why = "nobody has said what became of the load"
		}
		if _, err := l.End(d.ID, Failed, why); err != nil {
			return err
		}
	}
	return nil
}

// List returns the exercises, oldest first.
func (l *Log) List() []Drill {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Get returns one exercise.
func (l *Log) Get(id uint64) (Drill, error) {
	for _, d := range l.List() {
		if d.ID == id {
			return d, nil
		}
	}
	return Drill{}, fmt.Errorf("%w: %d", ErrNone, id)
}

// Last returns the exercise of a kind that says most about a program: its own last one that has ended, else the last
// one of another.
func (l *Log) Last(kind, image string) (found Drill, ok bool) {
	for _, d := range l.List() {
		if d.Kind == kind && d.State != Running && (d.Image == image || !ok || found.Image != image) {
			found, ok = d, true
		}
	}
	return found, ok
}

// Passed returns when an exercise of a kind was passed last by a program; zero: never.
func (l *Log) Passed(kind, image string) (last time.Time) {
	for _, d := range l.List() {
		if d.Kind == kind && d.Image == image && d.State == Passed {
			last = d.Ended
		}
	}
	return last
}

// save writes the file anew, durably.
func (l *Log) save() error {
	data, err := json.MarshalIndent(document{l.last, l.list}, "", " ")
	if err != nil {
		return err
	}
	if err := cutover.WriteFile(l.path(), append(data, '\n')); err != nil {
		return fmt.Errorf("the drills could not be kept: %w", err)
	}
	return nil
}

// Assess works out how an exercise counts now for a program.
func (d *Drill) Assess(now time.Time, image string) {
	if d.State == Running {
		return
	}
	d.Age = now.Sub(d.Ended).Seconds()
	switch {
	case d.Image != image || image == "":
		d.Lapsed = "it was carried out on another image (" + d.Version + ", " + d.Image + ")"
	case now.After(d.Expires):
		d.Lapsed = "it has expired"
	}
}
