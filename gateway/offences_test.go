package gateway

import (
	"testing"
	"time"
)

// TestOffences: so many are free, then they cost time, and time makes them good.
func TestOffences(t *testing.T) {
	t.Parallel()
	var o offences
	now := time.Now()
	free := int(offencesFree/time.Second) * offenceRate
	o.now = free
	if until := o.add(now); until.After(now) {
		t.Errorf("%d offences cost %v", free, until.Sub(now))
	}
	o.now = offenceRate
	if until := o.add(now); until.Sub(now) != time.Second {
		t.Errorf("%d more cost %v", offenceRate, until.Sub(now))
	}
	now = now.Add(time.Hour)
	o.now = free
	if until := o.add(now); until.After(now) {
		t.Errorf("an hour later, %d offences cost %v", free, until.Sub(now))
	}
}
