package capture

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestCaptureLagIsOfTheOldest: records that are written together are as old as the oldest of them, or a slow copy would look
// fast, and a window measured from that would be too narrow.
func TestCaptureLagIsOfTheOldest(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}})
	var mu sync.Mutex
	var together []time.Duration // lags of batches of more than one
	c := w.capture("S", func(o *Options) {
		o.Copied = func(lag time.Duration, records int) {
			mu.Lock()
			defer mu.Unlock()
			if records > 1 {
				together = append(together, lag)
			}
		}
	})
	w.publish(1, on("s"))
	w.await("a copy", func() bool { return c.Status().Applied == 1 })
	release, stuck := make(chan struct{}), make(chan struct{}, 64)
	w.fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			select {
			case stuck <- struct{}{}:
			default:
			}
			<-release
		}
		return nil
	})
	w.publish(1, on("s")) // this one is being written
	<-stuck
	const age = 500 * time.Millisecond
	w.publish(1, on("s"))
	time.Sleep(age)
	w.publish(1, on("s"))
	w.await("both wait", func() bool { return c.Status().Counts.Pending >= 3 })
	close(release)
	w.await("a copy", func() bool { return c.Status().Applied == 4 })
	mu.Lock()
	defer mu.Unlock()
	if len(together) != 1 || together[0] < age {
		t.Errorf("lags of what was written together: %v, want one above %v", together, age)
	}
}

// TestCaptureLagIsNotOfWhatIsOld: the age of what was stored before it was copied is no lag. A window measured from it would
// be as wide as it gets until thousands of newer messages have come.
func TestCaptureLagIsNotOfWhatIsOld(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}})
	w.publish(20, on("s"))
	const age = time.Second
	time.Sleep(age)
	lags := make(chan time.Duration, 100)
	c := w.capture("S", func(o *Options) { o.Copied = func(lag time.Duration, _ int) { lags <- lag } })
	w.await("a copy", func() bool { return c.Status().State == StateLive && c.Status().Applied == 20 })
	w.publish(3, on("s"))
	w.await("the rest", func() bool { return c.Status().Applied == 23 })
	c.Stop()
	close(lags)
	n := 0
	for lag := range lags {
		if n++; lag >= age {
			t.Errorf("a lag of %v", lag)
		}
	}
	if n == 0 {
		t.Error("no lag was measured")
	}
}
