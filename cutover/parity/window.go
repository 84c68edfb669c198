package parity

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Window says how long something may be on its way before its absence counts. It is measured: the 99th percentile of
// the lag times Margin, between Min and Max; Initial holds until enough is measured.
type Window struct {
	Initial, Min, Max time.Duration
	Margin            float64
}

// DefaultWindow begins wide and becomes as narrow as the measured lag lets it.
func DefaultWindow() Window {
	return Window{Initial: 30 * time.Second, Min: 2 * time.Second, Max: 5 * time.Minute, Margin: 20}
}

// ErrWindow says that a copy that follows on its own is to be compared without a window.
var ErrWindow = errors.New(
	"a window of 0 with a copy that follows asynchronously: everything that is on its way would be " +
		"reported as missing; set the window well above the measured lag (ehdb_crossstore_parity_lag_seconds)",
)

func (w Window) check() error {
	switch {
	case w.Initial <= 0 || w.Min <= 0:
		return ErrWindow
	case w.Max < w.Min || w.Initial > w.Max:
		return fmt.Errorf("window: min %s, initial %s and max %s are not in order", w.Min, w.Initial, w.Max)
	case w.Margin < 1:
		return fmt.Errorf("window: a margin of %v makes it narrower than the lag", w.Margin)
	}
	return nil
}

const (
	lagSamples = 4096 // the last so many are looked at
	lagEnough  = 100  // fewer say nothing
)

// lags are the last measurements of the time from the authority's acknowledgement until the copy was durable.
type lags struct {
	mu   sync.Mutex
	ring []time.Duration
	next int
	n    uint64
}

func (l *lags) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; len(l.ring) < lagSamples {
		l.ring = append(l.ring, d)
		return
	}
	l.ring[l.next] = d
	l.next = (l.next + 1) % lagSamples
}

// Lag sums up measurements of lag.
type Lag struct {
	P50, P99, Max time.Duration
	N             uint64 // measured in all
}

func (l *lags) sum() Lag {
	l.mu.Lock()
	sorted, n := slices.Clone(l.ring), l.n
	l.mu.Unlock()
	if len(sorted) == 0 {
		return Lag{}
	}
	slices.Sort(sorted)
	at := func(q int) time.Duration { return sorted[min(len(sorted)*q/100, len(sorted)-1)] }
	return Lag{P50: at(50), P99: at(99), Max: sorted[len(sorted)-1], N: n}
}

// of returns the window for a measured lag.
func (w Window) of(l Lag) time.Duration {
	if l.N < lagEnough {
		return w.Initial
	}
	return min(max(time.Duration(float64(l.P99)*w.Margin), w.Min), w.Max)
}
