package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// difference is where the two servers part.
type difference struct {
	at        int    // the line of the script, from 0
	line      string // the line itself
	what      string // "answer", or the box
	want, got string
}

func (d *difference) String() string {
	return fmt.Sprintf("line %d: %s\n%s of\nnats-server: %s\ngateway:     %s\n%s", d.at+1, d.line, d.what, d.want, d.got,
		strings.Join(jsonDifference("", d.want, d.got), "\n"))
}

// like reports whether two differences are of the same sort: about the same thing, and if it is an answer about a field
// that is the same.
func (d *difference) like(e *difference) bool {
	if d.what != e.what || strings.Fields(d.line)[0] != strings.Fields(e.line)[0] {
		return false
	}
	fields := e.fields()
	return d.what != "answer" || slices.ContainsFunc(d.fields(), func(f string) bool { return slices.Contains(fields, f) })
}

// fields names the fields of an answer that differ.
func (d *difference) fields() (out []string) {
	for _, line := range jsonDifference("", d.want, d.got) {
		path, _, _ := strings.Cut(line, ": ")
		out = append(out, path)
	}
	return out
}

// diffPlayer plays scripts on both sides at once and compares after each line.
type diffPlayer struct {
	sides    [2]*diffSide
	settle   time.Duration            // pause after each line: both do things after they have answered
	patience time.Duration            // how long the two may differ
	tamper   func(line string) string // what the gateway plays instead of a line; nil: the line

	purged, restarted, copies, ahead bool // the script has come to that
	clock                            diffClock
}

// side is the line that a side plays.
func (p *diffPlayer) side(i int, line string) string {
	if p.tamper != nil && i == 1 {
		return p.tamper(line)
	}
	return line
}

// play plays a script from the beginning. nil means that the two were equal to the end.
func (p *diffPlayer) play(script []string) (*difference, error) {
	for _, s := range p.sides {
		if err := s.open(); err != nil {
			return nil, err
		}
		defer s.close()
	}
	p.purged, p.restarted, p.copies, p.ahead = false, false, false, false
	p.clock = newDiffClock(script)
	for i, line := range slices.Concat(script, []string{"check"}) {
		p.purged, p.restarted = p.purged || diffPurges(line), p.restarted || line == "restart"
		p.copies, p.ahead = p.copies || diffCopies(line), p.ahead || diffAhead.MatchString(line)
		d := p.step(line)
		if p.clock.late {
			return nil, nil
		}
		if d != nil {
			d.at, d.line = i, line
			return d, nil
		}
	}
	return nil, nil
}

// both runs a line on both sides at the same time.
func (p *diffPlayer) both(line string) (out [2]string) {
	var wg sync.WaitGroup
	line = diffMoments(line, time.Now())
	for i, s := range p.sides {
		wg.Go(func() { out[i] = s.run(p.side(i, line)) })
	}
	wg.Wait()
	if p.purged {
		out[0], out[1] = diffPurged(out[0]), diffPurged(out[1])
	}
	if p.restarted {
		out[0], out[1] = diffRestarted(out[0]), diffRestarted(out[1])
	}
	if p.ahead {
		out[0], out[1] = diffNumbers.ReplaceAllString(out[0], ""), diffNumbers.ReplaceAllString(out[1], "")
	}
	if p.copies && line == "api INFO" {
		out[0], out[1] = diffAccountConsumers.ReplaceAllString(out[0], ""), diffAccountConsumers.ReplaceAllString(out[1], "")
	}
	return out
}

func (p *diffPlayer) step(line string) *difference {
	if p.clock.wait(line) {
		return p.stepBoxes(time.Now().Add(p.patience))
	}
	deadline := time.Now().Add(p.patience)
	out := p.both(line)
	for out[0] != out[1] && !diffAllowed(line, out[0], out[1]) {
		if !diffReads(line) || time.Now().After(deadline) {
			return lineDifference(out[0], out[1])
		}
		time.Sleep(10 * time.Millisecond)
		out = p.both(line)
	}
	for _, s := range p.sides {
		_ = s.nc.Flush() // a closed connection shows in the next line
	}
	switch {
	case line == "restart":
		time.Sleep(10 * p.settle)
	case !diffReads(line):
		time.Sleep(p.settle)
	}
	if p.copies && !diffReads(line) {
		p.settleCopies(deadline)
	}
	return p.stepBoxes(deadline)
}

// stepBoxes compares what came, which may take until the deadline.
func (p *diffPlayer) stepBoxes(deadline time.Time) *difference {
	for {
		d := compareBoxes(p.received(0), p.received(1))
		if d == nil || time.Now().After(deadline) {
			return d
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// received is what came to a side, in the form that is compared.
func (p *diffPlayer) received(side int) map[string][]string {
	boxes := p.sides[side].received()
	if p.ahead {
		for _, lines := range boxes {
			for i := range lines {
				lines[i] = diffPending.ReplaceAllString(lines[i], "$1")
			}
		}
	}
	return boxes
}

// lineDifference narrows a difference of long answers to its first line.
func lineDifference(want, got string) *difference {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return &difference{what: "answer", want: w[i], got: g[i]}
		}
	}
	return &difference{what: "answer", want: want, got: got}
}

func compareBoxes(want, got map[string][]string) *difference {
	for _, k := range sortedKeys(want, got) {
		w, g := want[k], got[k]
		if slices.Equal(w, g) {
			continue
		}
		n := 0
		for n < min(len(w), len(g)) && w[n] == g[n] {
			n++
		}
		return &difference{what: "messages on " + k, want: fmt.Sprintf("%q", w[n:]), got: fmt.Sprintf("%q", g[n:])}
	}
	return nil
}

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// jsonDifference names the fields in which two JSON texts differ.
func jsonDifference(path, want, got string) (out []string) {
	var w, g map[string]json.RawMessage
	if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(got), &g) != nil {
		var wl, gl []json.RawMessage
		if json.Unmarshal([]byte(want), &wl) != nil || json.Unmarshal([]byte(got), &gl) != nil || len(wl) != len(gl) {
			return []string{path + ": " + want + " | " + got}
		}
		for i := range wl {
			if string(wl[i]) != string(gl[i]) {
				out = append(out, jsonDifference(fmt.Sprint(path, ".", i), string(wl[i]), string(gl[i]))...)
			}
		}
		return out
	}
	keys := maps.Clone(w)
	maps.Copy(keys, g)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if string(w[k]) != string(g[k]) {
			out = append(out, jsonDifference(path+"."+k, string(w[k]), string(g[k]))...)
		}
	}
	return out
}
