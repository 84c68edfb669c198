package pilot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// What ends something by itself has to be wrong twice in a row, each time by evidence of its own: one bad figure may be
// chance. A canary that names gates and a flip that is observed are ended so. A gate that is UNKNOWN has not failed.

// confirmEvery is how often it is looked, confirmDrill in the profile drill.
const (
	confirmEvery = 5 * time.Second
	confirmDrill = time.Second
)

// confirming is the time between two looks.
func (p *Pilot) confirming() time.Duration {
	if p.o.Profile == gate.Drill {
		return confirmDrill
	}
	return confirmEvery
}

// finding is something that is wrong.
type finding struct {
	name string // by which it is known the next time
	text string
	at   time.Time // of the evidence
}

// evidenceGap is by how much evidence is newer that is not the same: ages are rounded.
const evidenceGap = 100 * time.Millisecond

// failing is what was wrong the last times.
type failing struct {
	since map[string]time.Time // of the first evidence of a row, by finding
	text  string               // of what was wrong the last time
	said  string               // why it could not be ended
}

func newFailing() *failing { return &failing{since: make(map[string]time.Time)} }

// take notes what is wrong, and returns what was wrong before too, by older evidence.
func (f *failing) take(list []finding) (twice string) {
	var now, again []string
	seen := make(map[string]bool)
	for _, w := range list {
		seen[w.name] = true
		now = append(now, w.text)
		before, failed := f.since[w.name]
		switch {
		case !failed:
			f.since[w.name] = w.at
		case w.at.Sub(before) > evidenceGap:
			again = append(again, w.text)
		}
	}
	for name := range f.since {
		if !seen[name] {
			delete(f.since, name)
		}
	}
	f.text = strings.Join(now, "; ")
	return strings.Join(again, "; ")
}

// failed are those of some gates that fail.
func failed(r *gate.Report, gates []string) (list []finding) {
	for i := range r.Gates {
		g := &r.Gates[i]
		if g.State != gate.Fail || !slices.Contains(gates, g.ID) {
			continue
		}
		text := fmt.Sprintf("%s (%s: %s, wants %s; %s)", g.ID, g.Title, g.Value, g.Threshold, g.Reason)
		at := r.At.Add(-time.Duration(g.Age * float64(time.Second)))
		list = append(list, finding{g.ID, text, at})
	}
	return list
}
