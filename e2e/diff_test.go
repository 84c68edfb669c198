package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// diffTimes are the pauses after each line: short ones find differences fast, the long ones tell those apart from
// what is only not yet done.
const (
	diffSettle     = 4 * time.Millisecond
	diffSlowSettle = 40 * time.Millisecond
	diffPatience   = 1500 * time.Millisecond
	diffLines      = 60
	diffClocks     = 3 // players of scripts about time
)

// diffDuration is how long random scripts are played: EHDB_DIFF (a duration), ten minutes in the slow suite, else a few
// seconds.
func diffDuration(t *testing.T) time.Duration {
	t.Helper()
	if v := os.Getenv("EHDB_DIFF"); v != "" {
		d, err := time.ParseDuration(v)
		noErr(t, err)
		return d
	}
	if os.Getenv("EHDB_SLOW") != "" {
		return 10 * time.Minute
	}
	return 8 * time.Second
}

// diffFirstSeed is where the seeds start: EHDB_DIFF_SEED plays one again, else it is any.
func diffFirstSeed(t *testing.T) uint64 {
	t.Helper()
	v := os.Getenv("EHDB_DIFF_SEED")
	if v == "" {
		return rand.Uint64N(1e9) * 1000 //nolint:gosec // printed, so that it can be played again
	}
	seed, err := strconv.ParseUint(v, 10, 64)
	noErr(t, err)
	return seed
}

// TestDifferential plays random scripts on nats-server and on the gateway at the same time. Every answer, every message
// and the whole state afterwards must be equal; a script that shows a difference is shrunk and printed with its seed.
// Scripts about time mostly wait, so those are played beside the others.
func TestDifferential(t *testing.T) {
	first, end := diffFirstSeed(t), time.Now().Add(diffDuration(t))
	t.Logf("the first seed is %d", first)
	now := &diffSeries{name: "now", seed: first, step: 1, end: end, script: func(g *generator) []string { return g.script(diffLines) }}
	series := []*diffSeries{now}
	for i := range uint64(diffClocks) {
		series = append(series, &diffSeries{name: "clock", seed: first + i, step: diffClocks, end: end, script: (*generator).clockScript})
	}
	if only := os.Getenv("EHDB_DIFF_ONLY"); only != "" {
		series = slices.DeleteFunc(series, func(s *diffSeries) bool { return s.name != only })
	}
	var wg sync.WaitGroup
	for _, s := range series {
		s.player = &diffPlayer{sides: newDiffSides(t), settle: diffSettle, patience: diffPatience}
		wg.Go(func() {
			if err := s.play(t); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// diffSeries plays the scripts of many seeds on two servers of its own.
type diffSeries struct {
	name       string
	player     *diffPlayer
	seed, step uint64
	end        time.Time
	script     func(*generator) []string
}

// play plays until the end, and shrinks and tells of what differs.
func (s *diffSeries) play(t *testing.T) error {
	t.Helper()
	p := s.player
	played, late, found, unsteady := 0, 0, 0, 0
	for ; time.Now().Before(s.end) && found < 12; s.seed += s.step {
		played++
		g := newGenerator(s.seed)
		lines := s.script(g)
		d, err := p.play(lines)
		if p.clock.late {
			late++
		}
		for i := 0; i < 2 && d != nil && err == nil; i++ { // by no luck of a busy machine
			if d, err = p.again(lines); d == nil {
				unsteady++
			}
		}
		if err != nil {
			return err
		}
		if d == nil {
			continue
		}
		found++
		lines = lines[:min(d.at+1, len(lines))]
		short, err := p.shrink(lines, d)
		if err != nil {
			return err
		}
		if e, err := p.again(short); err == nil && e != nil && e.like(d) {
			d, lines = e, short
		} // else it is a matter of luck: the whole script says more
		t.Errorf("EHDB_DIFF_ONLY=%s EHDB_DIFF_SEED=%d (%s):\n%s\n%v", s.name, s.seed, g.theme.name, strings.Join(lines, "\n"), d)
	}
	t.Logf("%s: %d scripts, %d differed only in haste, %d came too late for their windows", s.name, played, unsteady, late)
	return nil
}

// again plays a script slowly.
func (p *diffPlayer) again(script []string) (*difference, error) {
	slow := &diffPlayer{sides: p.sides, tamper: p.tamper, settle: diffSlowSettle, patience: diffPatience}
	return slow.play(script)
}

// shrink shortens a script that shows a difference when it is played slowly, to one that shows one like it.
func (p *diffPlayer) shrink(script []string, found *difference) (short []string, err error) {
	q := &diffPlayer{sides: p.sides, tamper: p.tamper, settle: 15 * time.Millisecond, patience: 500 * time.Millisecond}
	end := time.Now().Add(time.Minute)
	if q.clock = newDiffClock(script); !q.clock.window.IsZero() {
		end = end.Add(4 * time.Minute)
	}
	short = shrink(script, end, func(s []string) bool {
		if err != nil || !diffComparable(s) {
			return false
		}
		var d *difference
		d, err = q.play(s)
		return d != nil && d.like(found)
	})
	return short, err
}

// TestDiffFinds: the instrument itself. One message that is another on one side, in a script of many lines, is found, and
// what is left of the script is what it takes to see it.
func TestDiffFinds(t *testing.T) {
	t.Parallel()
	p := &diffPlayer{sides: newDiffSides(t), settle: diffSettle, patience: 300 * time.Millisecond}
	p.tamper = func(line string) string { return strings.Replace(line, "planted", "altered", 1) }
	script := []string{`api STREAM.CREATE.A {"name":"A","subjects":["a.>"],"allow_direct":true,"metadata":{"k":"v"}}`}
	for i := range 4 {
		script = append(script, "pub a.1 before", "get A.a.1", `api STREAM.MSG.DELETE.A {"seq":`+strconv.Itoa(i+1)+`}`)
	}
	script = append(script, `pub a.2 planted {"K":"v"}`, "pub a.1 after", "api STREAM.INFO.A")
	d, err := p.play(script)
	noErr(t, err)
	if d == nil {
		t.Fatal("the difference was not found")
	}
	short, err := p.shrink(script, d)
	noErr(t, err)
	want := []string{`api STREAM.CREATE.A {"name":"A","subjects":["a.\u003e"]}`, `pub a.2 planted {}`}
	if !slices.Equal(short, want) {
		t.Errorf("shrunk to:\n%s", strings.Join(short, "\n"))
	}
	p.tamper = nil
	if d, err = p.play(script); d != nil || err != nil {
		t.Errorf("without it: %v %v", d, err)
	}
}

// TestDiffFindsLateness: what comes due in another window on one side is found, and a script that is played too slowly for
// its windows shows nothing.
func TestDiffFindsLateness(t *testing.T) {
	p := &diffPlayer{sides: newDiffSides(t), settle: diffSettle, patience: 300 * time.Millisecond}
	script := []string{
		`api STREAM.CREATE.A {"name":"A","subjects":["a.>"]}`, makeConsumer("C", `"max_waiting":3`), "tick 1.5s",
		`pull A C 0 {"batch":1,"expires":` + soon + `}`, "tick 1.5s", infoLine,
	}
	inTime := func() (d *difference, err error) {
		for range 10 { // a busy machine is late at times
			if d, err = p.play(script); !p.clock.late {
				break
			}
		}
		return d, err
	}
	p.tamper = func(line string) string { return strings.Replace(line, soon, "2000000000", 1) }
	d, err := inTime()
	noErr(t, err)
	if d == nil || d.line != "tick 1.5s" || d.what != "messages on in.A.C.0" {
		t.Errorf("found %v", d)
	}
	p.tamper = nil
	if d, err = inTime(); d != nil || err != nil || p.clock.late {
		t.Errorf("without it: %v %v, late %v", d, err, p.clock.late)
	}
	p.settle = diffWindow + 100*time.Millisecond
	if d, err = p.play(script); d != nil || err != nil || !p.clock.late {
		t.Errorf("played slowly: %v %v, late %v", d, err, p.clock.late)
	}
}

// TestDiffScript plays the script in the file EHDB_DIFF_SCRIPT and prints what each side says, for working on a
// difference.
func TestDiffScript(t *testing.T) {
	path := os.Getenv("EHDB_DIFF_SCRIPT")
	if path == "" {
		t.Skip("EHDB_DIFF_SCRIPT names no script")
	}
	b, err := os.ReadFile(path)
	noErr(t, err)
	for _, s := range newDiffSides(t) {
		noErr(t, s.open())
		seen := map[string]int{}
		t.Logf("=== %s", s.name)
		for line := range strings.Lines(string(b)) {
			line = diffMoments(strings.TrimSpace(line), time.Now())
			t.Logf("> %s\n%s", line, s.run(line))
			time.Sleep(3 * diffSlowSettle)
			for box, lines := range s.arrivals() {
				for _, l := range lines[min(seen[box], len(lines)):] {
					t.Logf("%s <- %s", box, l)
				}
				seen[box] = len(lines)
			}
		}
		s.close()
	}
}
