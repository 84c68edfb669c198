package pilot

import (
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// A gate has to fail twice in a row, each time by evidence of its own; one that is not known has not failed, and one that
// is not named does not count.
func TestTwiceInARow(t *testing.T) {
	at := time.Unix(1000, 0)
	type look struct {
		g4, g10 gate.State
		age     time.Duration // of what they say
		twice   bool
	}
	for name, looks := range map[string][]look{
		"twice":          {{g10: gate.Fail}, {g10: gate.Fail, twice: true}},
		"again":          {{g10: gate.Fail}, {g10: gate.Fail, twice: true}, {g10: gate.Fail, twice: true}},
		"not in a row":   {{g10: gate.Fail}, {g10: gate.Pass}, {g10: gate.Fail}},
		"not known":      {{g10: gate.Fail}, {g10: gate.Unknown}, {g10: gate.Fail}, {g10: gate.Pending}},
		"same evidence":  {{g10: gate.Fail}, {g10: gate.Fail, age: time.Second}, {g10: gate.Fail, twice: true}},
		"another":        {{g10: gate.Fail, g4: gate.Pass}, {g4: gate.Fail, g10: gate.Pass}},
		"two of them":    {{g10: gate.Fail, g4: gate.Fail}, {g4: gate.Fail, g10: gate.Fail, twice: true}},
		"nothing fails":  {{g10: gate.Pass}, {g10: gate.Pass}},
		"is not counted": {{g4: gate.Pass}, {g4: gate.Pass}},
	} {
		f := newFailing()
		for i, l := range looks {
			r := gate.Report{At: at.Add(time.Duration(i) * time.Second), Gates: []gate.Result{
				{ID: "G3", State: gate.Fail},
				{ID: "G4", State: l.g4, Age: l.age.Seconds()},
				{ID: "G10", State: l.g10, Age: l.age.Seconds(), Reason: "worker: 5 waiting"},
			}}
			twice := f.take(failed(&r, []string{"G4", "G10"}))
			if (twice != "") != l.twice || strings.Contains(twice, "G3") {
				t.Errorf("%s, look %d: %q", name, i, twice)
			}
			if fails := l.g4 == gate.Fail || l.g10 == gate.Fail; fails != (f.text != "") {
				t.Errorf("%s, look %d: failing %q", name, i, f.text)
			}
		}
	}
}
