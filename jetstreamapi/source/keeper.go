package source

import (
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// keeper is a link as its local origin sees it: a stream.Observer that needs every message until it is durable in the
// target.
type keeper struct {
	filters []storage.Filter
	floor   atomic.Uint64 // what is not needed any more ends here

	mu     sync.Mutex
	origin *stream.Stream
	detach func()
	wake   chan struct{} // of one: something new is visible
}

// Wants implements stream.Observer.
func (k *keeper) Wants(key []byte) bool {
	if len(k.filters) == 0 {
		return true
	}
	for _, f := range k.filters {
		if f.Match(key) {
			return true
		}
	}
	return false
}

// Done implements stream.Observer.
func (k *keeper) Done(seq uint64, _ []byte) bool { return seq <= k.floor.Load() }

// join attaches to origin, whose messages are needed from first on; nothing is to be done if it is attached.
func (k *keeper) join(origin *stream.Stream, first uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.origin == origin {
		return
	}
	k.leaveLocked()
	k.floor.Store(first - 1)
	wake := make(chan struct{}, 1)
	k.origin, k.wake = origin, wake
	k.detach = origin.Attach(k, func(uint64) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
}

// woken returns what is sent to when the origin shows something new.
func (k *keeper) woken() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wake
}

func (k *keeper) attachedTo() *stream.Stream {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.origin
}

// leave detaches.
func (k *keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaveLocked()
}

func (k *keeper) leaveLocked() {
	if k.detach != nil {
		k.detach()
	}
	k.origin, k.detach = nil, nil
}
