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
