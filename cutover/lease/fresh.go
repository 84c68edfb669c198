package lease

import (
	"sync"
	"sync/atomic"
	"time"
)

// freshness is until when what was last seen of the lease counts. It costs a look at the clock to ask.
type freshness struct {
	base time.Time
	end  atomic.Int64 // since base; 0: for ever

	mu   sync.Mutex
	next chan struct{} // closed when it is longer
}

func (f *freshness) init() { f.base, f.next = time.Now(), make(chan struct{}) }

// until says that it counts until t.
func (f *freshness) until(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end.Store(int64(t.Sub(f.base)))
	close(f.next)
	f.next = make(chan struct{})
}

// prolong is until for one that nobody could look for, by a process that does run: only if what was seen counts still.
// Servers that are gone for long keep nobody waiting.
func (f *freshness) prolong(t time.Time) {
	if f.end.Load() != 0 && f.wait() == nil {
		f.until(t)
	}
}

// wait returns what closes once it counts again; nil: it does.
func (f *freshness) wait() <-chan struct{} {
	if end := f.end.Load(); end == 0 || int64(time.Since(f.base)) < end {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(time.Since(f.base)) < f.end.Load() {
		return nil
	}
	return f.next
}

// Wait returns nil while this process has looked at the lease lately, else what closes when it has looked again: until
// then another gateway may have taken over, because this process, or its machine, did not run.
func (l *Lease) Wait() <-chan struct{} {
	w := l.fresh.wait()
	if w != nil {
		l.Kick()
	}
	return w
}
