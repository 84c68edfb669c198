package monitor

import (
	"sync"
	"time"
)

// Answers that take long are kept, and drawn up again in the background while somebody asks for them: an autoscaler
// with a deadline of its own gets them at once, however many streams there are.
const (
	keepFrom     = 10 * time.Millisecond // answers that take less are drawn up for each request
	keptMaxAge   = 5 * time.Second       // no answer is older
	renewAfter   = time.Second           // the shortest time from one to the next
	renewShare   = 10                    // one part in so many of the time goes into drawing up, if that is enough
	keptUnasked  = 6 * time.Minute       // after which nobody seems to be interested: some ask every five minutes
	keptMaxBytes = 64 << 20              // of all answers kept
)

// kept holds such answers by what was asked for.
type kept struct {
	mu      sync.Mutex
	answers map[string]*keptAnswer
	bytes   int
	closed  bool
	renewed sync.WaitGroup
}

// keptAnswer is an answer, or one that is being drawn up for the first time.
type keptAnswer struct {
	done  chan struct{} // closed when the first is there
	body  []byte
	err   error
	since time.Time // when drawing up began: the figures are not older
	asked time.Time
	timer *time.Timer // of the next renewal; nil: not kept
}

// get returns the answer to what key stands for: one that is kept, else one that draw makes now. Requests that come
// while it is made share it.
func (k *kept) get(key string, draw func() ([]byte, error)) ([]byte, error) {
	k.mu.Lock()
	a := k.answers[key]
	if a != nil && a.timer != nil && time.Since(a.since) > keptMaxAge { // the renewal is late
		k.drop(key, a)
		a = nil
	}
	if a != nil {
		a.asked = time.Now()
		k.mu.Unlock()
		<-a.done
		k.mu.Lock()
		defer k.mu.Unlock()
		return a.body, a.err
	}
	now := time.Now()
	a = &keptAnswer{done: make(chan struct{}), since: now, asked: now}
	if k.answers == nil {
		k.answers = map[string]*keptAnswer{}
	}
	k.answers[key] = a
	k.mu.Unlock()

	body, err := draw()
	took := time.Since(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	a.body, a.err = body, err
	close(a.done)
	if err != nil || took < keepFrom || k.closed || k.bytes+len(body) > keptMaxBytes {
		k.drop(key, a)
		return body, err
	}
	k.bytes += len(body)
	a.timer = time.AfterFunc(pause(took), func() { k.renew(key, a, draw) })
	return body, nil
}

// pause is how long to wait after drawing up took so long: half of the time that an answer may be given is left for the
// next one, which may take longer.
func pause(took time.Duration) time.Duration {
	return max(0, min(max(renewAfter, (renewShare-1)*took), keptMaxAge/2-took)) //nolint:mnd // half
}

// renew draws an answer up again, unless nobody wants it any more. One that cannot be drawn up is not kept.
func (k *kept) renew(key string, a *keptAnswer, draw func() ([]byte, error)) {
	k.mu.Lock()
	if k.closed || k.answers[key] != a {
		k.mu.Unlock()
		return
	}
	if time.Since(a.asked) > keptUnasked {
		k.drop(key, a)
		k.mu.Unlock()
		return
	}
	k.renewed.Add(1)
	defer k.renewed.Done()
	k.mu.Unlock()

	now := time.Now()
	body, err := draw()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answers[key] != a {
		return
	}
	k.bytes += len(body) - len(a.body)
	a.body, a.err, a.since = body, err, now
	if err != nil || k.closed || k.bytes > keptMaxBytes {
		k.drop(key, a)
		return
	}
	a.timer.Reset(pause(time.Since(now)))
}

// drop forgets an answer. k.mu is held.
func (k *kept) drop(key string, a *keptAnswer) {
	if k.answers[key] != a {
		return
	}
	delete(k.answers, key)
	if a.timer != nil {
		a.timer.Stop()
		k.bytes -= len(a.body)
	}
}

// close forgets all answers and waits for renewals to end.
func (k *kept) close() {
	k.mu.Lock()
	k.closed = true
	for key, a := range k.answers {
		k.drop(key, a)
	}
	k.mu.Unlock()
	k.renewed.Wait()
}
