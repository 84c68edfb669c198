package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Event is a turn of a cutover, and the name of the program that is run then.
type Event string

// The events.
const (
	BeforeFlip     Event = "on-before-flip"
	BeforeRollback Event = "on-before-rollback"
	BeforeComplete Event = "on-before-complete"
	BeginPostponed Event = "on-begin-postponed"
	Success        Event = "on-success"
	Failure        Event = "on-failure"
)

// Events are all of them.
func Events() []Event {
	return []Event{BeforeFlip, BeforeRollback, BeforeComplete, BeginPostponed, Success, Failure}
}

// Asks reports whether the program of an event is asked, and may refuse. Others are told.
func (e Event) Asks() bool { return strings.HasPrefix(string(e), "on-before-") }

// DefaultTimeout is how long a program may take, if nothing else is said.
const DefaultTimeout = 30 * time.Second

// Set is a folder of programs. A nil one has none.
type Set struct {
	dir     string
	timeout time.Duration
	found   []Event // when it was loaded: these have to be there later too
}

// Load looks at a folder. It is an error if one of its programs could not be run, since one that is to refuse and is
// not asked is worse than none: a file that begins with on- and is of no event, one that is not executable, or one that
// everybody may write. Other files are left alone. timeout bounds each run; 0: DefaultTimeout.
func Load(dir string, timeout time.Duration) (*Set, error) {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder with the hooks cannot be read: %w", err)
	}
	s := &Set{dir: dir, timeout: timeout}
	var wrong []error
	for _, f := range list {
		name := Event(f.Name())
		switch {
		case !strings.HasPrefix(f.Name(), "on-"):
			continue
		case !slices.Contains(Events(), name):
			path := filepath.Join(dir, f.Name())
			wrong = append(wrong, fmt.Errorf("%s is no hook: there are %s", path, names(Events())))
			continue
		}
		s.found = append(s.found, name)
		wrong = append(wrong, s.runnable(name))
	}
	return s, errors.Join(wrong...)
}

func names(list []Event) string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, string(e))
	}
	return strings.Join(out, ", ")
}

// runnable is why the program of an event cannot be run.
func (s *Set) runnable(e Event) error {
	path := s.path(e)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("the hook cannot be looked at: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: chmod +x, or remove it", path)
	case info.Mode()&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody: chmod o-w", path)
	}
	return nil
}

func (s *Set) path(e Event) string { return filepath.Join(s.dir, string(e)) }

// Dir is the folder; empty: there is none.
func (s *Set) Dir() string {
	if s == nil {
		return ""
	}
	return s.dir
}

// Timeout bounds each run.
func (s *Set) Timeout() time.Duration {
	if s == nil {
		return 0
	}
	return s.timeout
}

// Found are the events that have a program now, or had one when the set was loaded.
func (s *Set) Found() []Event {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(Events(), func(e Event) bool { return !s.has(e) })
}

// has reports whether there is a program for an event. One that was there once is expected to be there still.
func (s *Set) has(e Event) bool {
	if slices.Contains(s.found, e) {
		return true
	}
	_, err := os.Stat(s.path(e))
	return !errors.Is(err, fs.ErrNotExist)
}

// Problems are why programs cannot be run now; none: they can.
func (s *Set) Problems() (list []string) {
	for _, e := range s.Found() {
		if err := s.runnable(e); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}
