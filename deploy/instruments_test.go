package deploy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

const instruments = "../docs/instruments.md"

// faults are those that the issue asks for.
var faults = []string{
	"drop", "alter", "swap", "duplicate", "late inside the window", "late outside the window", "unreadable", "spurious",
	"missing ack",
}

// TestInstruments: every gate, alert, verdict, control and fault has a row with tests that exist, and there is no row of
// anything else.
func TestInstruments(t *testing.T) {
	b, err := os.ReadFile(instruments)
	if err != nil {
		t.Fatal(err)
	}
	tests := testFuncs(t)
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(b), -1) {
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
	var gates, rules, states []string
	for _, g := range gate.Evaluate(gate.Facts{}, cutover.Scope{}, gate.Options{Purpose: gate.Complete}).Gates {
		gates = append(gates, g.ID)
	}
	all, _ := alerts(t)
	for _, r := range all {
		rules = append(rules, r.Alert)
	}
	for _, s := range parity.States() {
		states = append(states, s.String())
	}
	want := map[string][]string{
		"gate": gates, "alert": rules, "state": states, "outcome": parity.Outcomes(), "control": parity.ControlNames(),
		"fault": faults,
	}
	for _, table := range tables(string(b)) {
		kind := table[0][0]
		list, ok := want[kind]
		if !ok {
			t.Errorf("a table of each %q", kind)
			continue
		}
		delete(want, kind)
		var have []string
		for _, r := range table[1:] {
			have = append(have, strings.Trim(r[0], "`"))
			if last := r[len(r)-1]; kind != "control" && !strings.Contains(last, "Test") {
				t.Errorf("%s %s: no test", kind, r[0])
			}
		}
		for _, name := range list {
			if !slices.Contains(have, name) {
				t.Errorf("%s %s has no row", kind, name)
			}
		}
		for _, name := range have {
			if !slices.Contains(list, name) {
				t.Errorf("there is no %s %s", kind, name)
			}
		}
	}
	for kind := range want {
		t.Errorf("there is no table of each %s", kind)
	}
}

// tables returns the tables of a page, with their heads and without the lines below those.
func tables(page string) (out [][][]string) {
	var open [][]string
	for line := range strings.Lines(page + "\n\n") {
		switch {
		case strings.HasPrefix(line, "|---"):
		case strings.HasPrefix(line, "| "):
			var cells []string
			for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			open = append(open, cells)
		case len(open) > 0:
			out, open = append(out, open), nil
		}
	}
	return out
}
