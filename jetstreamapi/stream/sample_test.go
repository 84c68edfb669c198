package stream

import (
	"testing"
	"time"
)

// TestSample: one publish at a time is measured, from the first of a batch until it is visible; what is not stored is not.
func TestSample(t *testing.T) {
	var p sample
	var told []time.Duration
	tell := func(d time.Duration) { told = append(told, d) }
	ago := time.Now().Add(-time.Minute).UnixNano()
	p.begin(8, ago)
	p.settle(7) // refused
	p.end(20, tell)
	if len(told) != 0 {
		t.Errorf("measured what was not stored: %v", told)
	}
	p.begin(8, ago)
	p.settle(10)
	p.begin(11, time.Now().UnixNano())
	p.settle(11)
	p.end(7, tell)
	p.end(11, tell)
	p.end(12, tell)
	if len(told) != 1 || told[0] < time.Minute || told[0] > 2*time.Minute {
		t.Errorf("told %v, want the minute of 8 alone", told)
	}
}
