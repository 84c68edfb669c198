package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Waiver lets a reason of not_comparable pass until it expires (G5).
type Waiver struct {
	Reason  string    `json:"reason"` // as parity.Status.Reasons has it
	Why     string    `json:"why"`
	Expires time.Time `json:"expires"`
}

// Comparison is what the facts of parity are taken from.
type Comparison struct {
	Status      parity.Status
	Controls    parity.SelfTest
	Since       time.Time // since when traffic has been compared
	FenceBudget time.Duration
	Waivers     []Waiver
	Now         time.Time
}

// Facts returns the facts of G1 to G5, G9, G10, G20 and the lag of G6. What has not been measured is not in it.
func (c *Comparison) Facts() Facts {
	out, st := Facts{}, &c.Status
	put := func(name string, v float64, at time.Time, n uint64, detail string) {
		if !at.IsZero() {
			out[name] = Fact{Value: v, At: at, N: n, Source: "parity", Detail: detail}
		}
	}
	failed := []string{}
	for _, t := range c.Controls.Controls {
		if !t.Expected {
			failed = append(failed, t.Name)
		}
	}
	put(ControlsOKTicks, float64(c.Controls.OKTicks), c.Controls.At, uint64(len(c.Controls.Controls)),
		strings.Join(failed, ", "))
	if f, ok := out[ControlsOKTicks]; ok && c.Controls.OKTicks == 1 {
		f.Lapsed = "the controls were as expected once; they have to be twice in a row"
		out[ControlsOKTicks] = f
	}
	n := st.Counts.Examined
	put(Accounted, Yes(st.Counts.Accounted()), st.At, n, "")
	compared := n - st.Counts.By[parity.Pending] - st.Counts.By[parity.Suspended]
	put(Examined, float64(compared), st.At, n, "")
	if c.small(compared) {
		f := out[Examined]
		f.NotApplicable = fmt.Sprintf("the stream has only %d records, and all of them were compared, for a day",
			compared)
		out[Examined] = f
	}
	if !c.Since.IsZero() {
		put(OrganicHours, c.Now.Sub(c.Since).Hours(), st.At, n, "")
	}
	put(Diverged, float64(st.Counts.Diverged()), st.At, n, st.Outcome)
	put(DigestEqual, Yes(st.Digest.Equal), st.Digest.At, n, st.Digest.Authority+" "+st.Digest.Copy)
	put(ComparedAll, Yes(st.Complete.After(st.Attached)), st.At, n, "")
	put(NotCompared, float64(c.unwaived()), st.At, n, amounts(st.Reasons)+c.waived())
	put(Regressions, float64(st.Regressions), st.At, n, "")
	if w := st.Window; w > 0 {
		put(LagOfWindow, st.Lag.P99/w, st.At, st.Lag.N, "")
	}
	if c.FenceBudget > 0 {
		put(LagOfFence, st.Lag.P99/c.FenceBudget.Seconds(), st.At, st.Lag.N, "")
	}
	c.consumers(put)
	return out
}

// small reports whether a stream has too few records for their number to say anything, and time has shown as much: all
// of them were compared, and went on being compared for a day.
func (c *Comparison) small(compared uint64) bool {
	return compared > 0 && compared < enoughRecords &&
		!c.Since.IsZero() && c.Now.Sub(c.Since).Hours() >= enoughHours &&
		c.Status.Complete.After(c.Status.Attached)
}

// waiver is the one that lets a reason pass now; nil: there is none.
func (c *Comparison) waiver(reason string) *Waiver {
	for i := range c.Waivers {
		if w := &c.Waivers[i]; w.Reason == reason && w.Expires.After(c.Now) {
			return w
		}
	}
	return nil
}

func (c *Comparison) unwaived() uint64 {
	n := c.Status.Counts.By[parity.NotComparable]
	for reason, k := range c.Status.Reasons {
		if c.waiver(reason) != nil {
			n -= min(k, n)
		}
	}
	return n
}

// waived says which reasons are waived, and why.
func (c *Comparison) waived() (s string) {
	for _, reason := range slices.Sorted(maps.Keys(c.Status.Reasons)) {
		if w := c.waiver(reason); w != nil && c.Status.Reasons[reason] > 0 {
			s += fmt.Sprintf("; %s is waived until %s: %s", reason, w.Expires.Format(time.RFC3339), w.Why)
		}
	}
	return s
}

// consumers adds the facts about consumers. Each is counted by itself: one that stands still is not hidden by others
// that move.
func (c *Comparison) consumers(put func(name string, v float64, at time.Time, n uint64, detail string)) {
	st := &c.Status
	var stranded, unbalanced, unseen, inexact, silent float64
	var names [5][]string
	note := func(i int, to *float64, by float64, name string) {
		*to += by
		names[i] = append(names[i], name)
	}
	for i := range st.Consumers {
		r := &st.Consumers[i]
		if r.Stranded > 0 {
			note(0, &stranded, float64(r.Stranded), fmt.Sprintf("%s: %d", r.Consumer, r.StrandedSeqs))
		}
		if r.Known && !r.Balanced {
			note(1, &unbalanced, 1, fmt.Sprintf("%s: %+d", r.Consumer, r.Drift))
		}
		if !r.Known {
			note(2, &unseen, 1, r.Consumer)
		}
		if !r.Exact {
			note(3, &inexact, 1, fmt.Sprintf("%s: at most %d twice", r.Consumer, r.WorstCase))
		}
		if silentNow(r, st.DeliveryAt) {
			note(4, &silent, 1, fmt.Sprintf("%s: %d waiting", r.Consumer, r.NumPending+r.AckPending))
		}
	}
	n, at := uint64(len(st.Consumers)), st.DeliveryAt
	for i, f := range []struct {
		name string
		v    float64
	}{{Stranded, stranded}, {Unbalanced, unbalanced}, {Unseen, unseen}, {Inexact, inexact}, {Silent, silent}} {
		put(f.name, f.v, at, n, strings.Join(names[i], "; "))
	}
}

// defaultAckWait is what a consumer without ack_wait has.
const defaultAckWait = 30.0

// silentNow: work is waiting, and for twice ack_wait nothing was delivered.
func silentNow(r *parity.ConsumerReport, at time.Time) bool {
	wait := r.AckWait
	if wait <= 0 {
		wait = defaultAckWait
	}
	return r.NumPending+r.AckPending > 0 && at.Sub(r.LastDelivery).Seconds() > 2*wait
}

// amounts are the entries of a map, by name.
func amounts(m map[string]uint64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(list, ", ")
}
