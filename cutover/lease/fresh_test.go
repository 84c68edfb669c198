package lease

import (
	"testing"
	"time"
)

// TestFresh: what was seen of the lease counts for a while, and what waits goes on when it was looked at again.
func TestFresh(t *testing.T) {
	var f freshness
	f.init()
	if f.wait() != nil {
		t.Error("it waits before anything was looked at: servers that cannot be reached would keep clients waiting")
	}
	f.until(time.Now().Add(time.Hour))
	if f.wait() != nil {
		t.Error("it waits though it was looked at")
	}
	f.until(time.Now().Add(-time.Millisecond)) // the process did not run for a while
	w := f.wait()
	if w == nil {
		t.Fatal("it does not wait")
	}
	select {
	case <-w:
		t.Fatal("it goes on, and nobody has looked")
	default:
	}
	f.until(time.Now().Add(time.Hour))
	<-w
	if f.wait() != nil {
		t.Error("it waits though it was looked at again")
	}
}
