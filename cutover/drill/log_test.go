package drill

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func begin(t *testing.T, l *Log, kind string) Drill {
	t.Helper()
	d, err := l.Begin(Drill{Kind: kind, Image: "i1", By: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t *testing.T, dir string) *Log {
	t.Helper()
	l, err := OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLogLasts: what was kept is there after the process has ended, and ids go on.
func TestLogLasts(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	d := begin(t, l, FlipAndBack)
	if _, err := l.Begin(Drill{Kind: Partition}); !errors.Is(err, ErrRunning) {
		t.Fatalf("two at a time: %v", err)
	}
	if _, err := l.End(d.ID, Passed, "there and back"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(d.ID, Failed, "later"); err != nil { // it has ended
		t.Fatal(err)
	}
	for kind, step := range map[string]Step{Partition: Broken, RestartWriter: Broken, Stepdown: Ready, KillGateway: Ready} {
		d := begin(t, l, kind)
		if _, err := l.Change(d.ID, func(d *Drill) error { d.Step = step; return nil }); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir) // the process ends
		if got, err := l.Get(d.ID); err != nil || got.State != Failed || !strings.Contains(got.Result, "in the middle") {
			t.Errorf("%s at %s: %+v %v", kind, step, got, err)
		}
	}
	kill := begin(t, l, KillGateway)
	if _, err := l.Change(kill.ID, func(d *Drill) error { d.Step = Broken; return nil }); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	if got, err := l.Get(kill.ID); err != nil || got.State != Running {
		t.Errorf("a drill that kills the gateway does not outlast that: %+v %v", got, err)
	}
	if err := l.Overdue(kill.Started.Add(MaxTime)); err != nil {
		t.Fatal(err)
	}
	if got, _ := l.Get(kill.ID); got.State != Failed || !strings.Contains(got.Result, "nobody has said") {
		t.Errorf("nobody reports: %+v", got)
	}
	if got, err := l.Get(d.ID); err != nil || got.State != Passed || got.Result != "there and back" || got.Ended.IsZero() {
		t.Errorf("%+v %v", got, err)
	}
	if next := begin(t, open(t, dir), Partition); next.ID != kill.ID+1 {
		t.Errorf("id %d after %d", next.ID, kill.ID)
	}
	if _, err := l.Get(99); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// TestLogDamaged: a file that is no evidence is put aside and said; the gateway goes on without.
func TestLogDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(`{"drills":[{"id"`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(dir)
	if err == nil || !strings.Contains(err.Error(), "do not count") || len(l.List()) != 0 {
		t.Fatalf("%v %v", err, l.List())
	}
	begin(t, l, Partition)
	if _, err := os.Stat(filepath.Join(dir, FileName+".damaged")); err != nil {
		t.Error(err)
	}
	open(t, dir)
}

// TestLogChangeFails: what could not be kept has not happened.
func TestLogChangeFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	d := begin(t, l, Partition)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(d.ID, Passed, ""); err == nil {
		t.Error("kept where there is nothing")
	}
	if got, _ := l.Get(d.ID); got.State != Running {
		t.Errorf("%+v", got)
	}
	if _, err := l.Begin(Drill{Kind: Partition}); err == nil || len(l.List()) != 1 {
		t.Error("begun without being kept")
	}
}

// TestLastSpeaksOfTheImage: evidence is the last of the same program, and says when it does not count.
func TestLastSpeaksOfTheImage(t *testing.T) {
	l := open(t, t.TempDir())
	for _, c := range []struct {
		image string
		state State
	}{{"i1", Passed}, {"i1", Failed}, {"i2", Passed}} {
		d := begin(t, l, Partition)
		if _, err := l.Change(d.ID, func(d *Drill) error { d.Image = c.image; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := l.End(d.ID, c.state, ""); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for _, c := range []struct {
		image  string
		state  State
		at     time.Time
		lapsed string
	}{
		{"i1", Failed, now, ""},
		{"i2", Passed, now, ""},
		{"i3", Passed, now, "another image"},
		{"", Passed, now, "another image"},
		{"i2", Passed, now.Add(Valid(Partition) + time.Minute), "expired"},
	} {
		d, ok := l.Last(Partition, c.image)
		if d.Assess(c.at, c.image); !ok || d.State != c.state || !strings.Contains(d.Lapsed, c.lapsed) || c.lapsed == "" && d.Lapsed != "" {
			t.Errorf("%+v: %+v", c, d)
		}
	}
	if _, ok := l.Last(Stepdown, "i1"); ok {
		t.Error("evidence of what never was")
	}
}

// TestLogIsBounded: of each kind the last ones are kept, and none whose stream may still be there is forgotten.
func TestLogIsBounded(t *testing.T) {
	l := open(t, t.TempDir())
	for n := range 3 * keptOfKind {
		d := begin(t, l, Partition)
		if _, err := l.Change(d.ID, func(d *Drill) error { d.Tidied = n != 3; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := l.End(d.ID, Passed, ""); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, l, Stepdown)
	list := l.List()
	if len(list) != keptOfKind+1 || list[0].ID != 4 || list[len(list)-1].Kind != Stepdown {
		t.Errorf("%d kept, the first is %d", len(list), list[0].ID)
	}
}
