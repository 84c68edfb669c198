package jetstreamapi

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func newTestQueue(workers, bound int) *queue {
	b := bus.NewRouter()
	return &queue{workers: workers, bound: bound, newOut: func() (*publisher, error) { return newPublisher(b, "$G") }}
}

func TestQueueKeepsOrderWithOneWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "jobs")
		q := newTestQueue(1, n)
		var got []int
		for i := range n {
			if !q.push(func(*publisher) { got = append(got, i) }) {
				t.Fatal("a queue with room refused a job")
			}
		}
		q.close()
		if len(got) != n || !slices.IsSorted(got) {
			t.Fatalf("%d jobs ran, of %d, in order: %v", len(got), n, slices.IsSorted(got))
		}
	})
}

func TestQueueRefusesBeyondItsBound(t *testing.T) {
	const bound = 3
	q := newTestQueue(1, bound)
	hold, running := make(chan struct{}), make(chan struct{})
	ran := 0
	q.push(func(*publisher) { close(running); <-hold; ran++ })
	<-running
	for i := range bound {
		if !q.push(func(*publisher) { ran++ }) {
			t.Fatalf("job %d of %d was refused", i, bound)
		}
	}
	if q.push(func(*publisher) { ran++ }) {
		t.Error("a full queue took a job")
	}
	if !q.pushAlways(func(*publisher) { ran++ }) {
		t.Error("pushAlways was refused")
	}
	close(hold)
	q.close()
	if want := 1 + bound + 1; ran != want {
		t.Errorf("%d jobs ran, want %d", ran, want)
	}
	if q.push(func(*publisher) {}) || q.pushAlways(func(*publisher) {}) {
		t.Error("a closed queue took a job")
	}
}

func TestQueueFlushesWhenItRunsDry(t *testing.T) {
	b := bus.NewRouter()
	q := &queue{workers: 4, bound: 100, newOut: func() (*publisher, error) { return newPublisher(b, "$G") }}
	p := newParty(t, b, "$G")
	got := p.listen("x")
	const n = 1000
	var sent sync.WaitGroup
	for range n {
		sent.Go(func() {
			for !q.push(func(out *publisher) { out.send("x", nil, []byte("y")) }) {
			}
		})
	}
	sent.Wait()
	q.close()
	if len(got) != n {
		t.Errorf("%d messages arrived of %d", len(got), n)
	}
}
