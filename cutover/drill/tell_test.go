package drill

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// TestTell: each exercise is told of when it begins and when it has ended, once, also when the end of the process was
// its end.
func TestTell(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var told []string
	tell := func(d Drill) { told = append(told, d.Kind+" "+string(d.State)) }
	want := func(list ...string) {
		t.Helper()
		if !slices.Equal(told, list) {
			t.Errorf("told %q, want %q", told, list)
		}
		told = nil
	}
	l.Tell(tell)
	d := begin(t, l, Partition)
	if _, err := l.Change(d.ID, func(d *Drill) error { d.Step = Ready; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Change(d.ID, func(d *Drill) error { d.State = Passed; return errors.New("refused") }); err == nil {
		t.Fatal("changed")
	}
	want("partition running")
	for range 2 {
		if _, err := l.End(d.ID, Passed, "0 lost"); err != nil {
			t.Fatal(err)
		}
	}
	want("partition passed")
	if at := l.Passed(Partition, "i1"); time.Since(at) > time.Minute || !l.Passed(Partition, "i2").IsZero() ||
		!l.Passed(Stepdown, "i1").IsZero() {
		t.Errorf("passed at %v", at)
	}
	late := begin(t, l, Stepdown)
	if err := l.Overdue(late.Started.Add(MaxTime)); err != nil {
		t.Fatal(err)
	}
	want("nats-stepdown running", "nats-stepdown failed")
	begin(t, l, RestartWriter)
	want("restart-writer running")
	l = open(t, dir)
	l.Tell(tell)
	want("restart-writer failed")
	l = open(t, dir)
	l.Tell(tell)
	want()
}
