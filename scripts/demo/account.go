package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// accounting is what became of every message.
type accounting struct {
	Published    int       `json:"published"` // acknowledged
	Delivered    int       `json:"delivered"` // and acknowledged by a worker, confirmed
	Jobs         int       `json:"jobs"`
	JobsDone     int       `json:"jobs_done"`
	Unconfirmed  int       `json:"unconfirmed"` // delivered; the answer to the ack was lost in a kill, the ack was not
	Lost         int       `json:"lost"`
	Duplicated   int       `json:"duplicated"` // sent once more behind a confirmed ack
	Forgotten    int       `json:"forgotten"`  // the same, behind an ack that a killed nats-server forgot
	Disordered   int       `json:"disordered"` // steps of the ordered consumer that were none
	Counted      int64     `json:"counted"`
	Unsure       int64     `json:"unsure"`  // of these, beyond: the answer was lost
	Counter      int64     `json:"counter"` // what the counter says in the end
	Objects      int64     `json:"objects"`
	Retries      int64     `json:"retries"` // what programs tried again, around restarts and kills
	ClientErrors []string  `json:"client_errors"`
	FenceMillis  []float64 `json:"fence_ms"`
	P50Millis    float64   `json:"publish_p50_ms"`
	P99Millis    float64   `json:"publish_p99_ms"`
	// Steps are the same for each side that answered, while nothing was moved, and Overhead what the way through the
	// gateway adds to a publish in mode nats, beside that load: medians, of publishes by turns with direct ones.
	Steps    map[string][2]float64 `json:"publish_p50_p99_ms_by_step"`
	Overhead float64               `json:"gateway_adds_p50_ms"`

	lostAnswers int // that the kills account for: each worker waits for one at a time
}

// account sums up.
func (l *load) account(s *site) *accounting {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &accounting{
		Published: len(l.acked), Jobs: len(l.jobs), Disordered: l.disorder,
		Counted: l.counted.Load(), Unsure: l.unsure.Load(), Counter: l.counter,
		Objects: l.objects.Load(), Retries: l.retries.Load(),
		ClientErrors: append([]string{}, l.errs...),
		lostAnswers:  2 * s.o.workers() * (s.o.kills + s.moveKills + 1), // two consumers, and the restart
		Steps:        map[string][2]float64{},
	}
	a.Duplicated, a.Forgotten = l.again(s.natsKills)
	l.fate(a, l.acked, l.confirmed, &a.Delivered)
	l.fate(a, l.jobs, l.jobsDone, &a.JobsDone)
	for _, f := range s.fences {
		a.FenceMillis = append(a.FenceMillis, f*1000) //nolint:mnd // milliseconds
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	both := func(d []time.Duration) [2]float64 {
		return [2]float64{ms(quantile(d, 0.5)), ms(quantile(d, 0.99))} //nolint:mnd // quantiles
	}
	all := both(l.latency)
	a.P50Millis, a.P99Millis, a.Overhead = all[0], all[1], ms(s.overhead)
	for step, d := range l.steps {
		a.Steps[step] = both(d)
	}
	return a
}

// forgets is for how long before a SIGKILL a nats-server may have confirmed acks that it then forgets: it writes down
// messages before it confirms them, and what consumers have got a moment later.
const forgets = 2 * time.Second

// again counts the deliveries behind a confirmed ack, and of these those behind one that a killed nats-server forgot.
func (l *load) again(kills []time.Time) (twice, forgotten int) {
	for _, list := range l.seen {
		for i, s := range list {
			switch {
			case !s.again:
			case slices.ContainsFunc(list[:i], func(before *sight) bool {
				return before.confirmed() && slices.ContainsFunc(kills, func(kill time.Time) bool {
					gone := kill.Sub(before.answered)
					return gone > 0 && gone < forgets && s.arrived.After(kill)
				})
			}):
				forgotten++
			default:
				twice++
			}
		}
	}
	return twice, forgotten
}

// fate counts what became of messages.
func (l *load) fate(a *accounting, published map[string]uint64, done map[string]int, delivered *int) {
	for id := range published {
		switch list := l.seen[id]; {
		case done[id] > 0:
			*delivered++
		case len(list) > 0 && list[len(list)-1].err != "":
			a.Unconfirmed++
		default:
			a.Lost++
		}
	}
}

// print writes the accounting for people.
func (a *accounting) print() {
	longest := 0.0
	for _, f := range a.FenceMillis {
		longest = max(longest, f)
	}
	fmt.Printf(`
published      %d, and %d jobs
delivered      %d, and %d jobs; %d more whose ack counted though its answer was lost in the kill
lost           %d
duplicated     %d
forgotten      %d acks, by a killed nats-server
out of order   %d
counted        %d by compare-and-swap; the counter says %d
objects        %d put and read back
client errors  %d (%d tries again around the restart and the kill)
fence          at most %.0f ms
publish        %.1f ms at the median, %.1f ms at the 99th percentile; the gateway adds %.2f ms in mode nats
`, a.Published, a.Jobs, a.Delivered, a.JobsDone, a.Unconfirmed, a.Lost, a.Duplicated, a.Forgotten, a.Disordered,
		a.Counted, a.Counter, a.Objects, len(a.ClientErrors), a.Retries, longest, a.P50Millis, a.P99Millis, a.Overhead)
	for _, step := range slices.Sorted(maps.Keys(a.Steps)) {
		fmt.Printf("  %-12s %.1f and %.1f ms\n", step, a.Steps[step][0], a.Steps[step][1])
	}
	for _, e := range a.ClientErrors {
		fmt.Println("  ", e)
	}
}

// check is an error if something was not as it should be.
func (a *accounting) check() error {
	var errs []error
	if a.Lost > 0 {
		errs = append(errs, fmt.Errorf("%d messages were lost", a.Lost))
	}
	if a.Unconfirmed > a.lostAnswers {
		errs = append(errs, fmt.Errorf("%d acks were not confirmed, %d may be", a.Unconfirmed, a.lostAnswers))
	}
	if a.Duplicated > 0 {
		errs = append(errs, fmt.Errorf("%d messages came again behind their ack", a.Duplicated))
	}
	if a.Disordered > 0 {
		errs = append(errs, fmt.Errorf("the ordered consumer was out of order %d times", a.Disordered))
	}
	if a.Counter < a.Counted || a.Counter > a.Counted+a.Unsure {
		errs = append(errs, fmt.Errorf("the counter says %d, and %d was counted, or %d more",
			a.Counter, a.Counted, a.Unsure))
	}
	if n := len(a.ClientErrors); n > 0 {
		errs = append(errs, fmt.Errorf("clients saw %d errors, the first: %s", n, a.ClientErrors[0]))
	}
	if a.Published == 0 || a.Jobs == 0 || a.Objects == 0 || a.Counted == 0 {
		errs = append(errs, errors.New("a program did nothing"))
	}
	return errors.Join(errs...)
}
