package consumer

import (
	"sync"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// mailLimit is the number of letters above which senders are asked to pause. Letters above it are still taken: what a
// sender had on its way when it was asked is not lost, and it is bounded by one read of each connection.
const mailLimit = 8192

type mailKind uint8

const (
	mailAck mailKind = iota + 1
	mailPull
	mailAnswer      // to a flow-control request
	mailInterest    // interest in the deliver subject may have changed
	mailConfirm     // an ack became durable
	mailRefuse      // an ack can never become durable
	mailTrimmed     // messages left the log
	mailUndelivered // a delivery reached nobody
)

// letter is one event for the machine. Its bytes are in the arena of its mailbox.
type letter struct {
	kind  mailKind
	ack   jsapi.AckKind
	id    AckID
	reply []byte
	body  []byte
}

// mailbox collects events between two steps. Any goroutine may put; only the worker takes.
type mailbox struct {
	mu      sync.Mutex
	letters *letters // nil: empty
	stall   chan struct{}
}

// letters is what a mailbox holds; it is borrowed from a pool while there is something in it, so that an idle consumer
// holds nothing.
type letters struct {
	list  []letter
	arena []byte
}

var letterPool = sync.Pool{New: func() any { return new(letters) }}

// keepLetters is the size above which memory is not kept for the next use.
const keepLetters = 4096

// empty reports whether there is nothing in it.
func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.letters == nil
}

// put adds l, copying its bytes, and returns nil or a channel that is closed once there is room again.
func (b *mailbox) put(l letter) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.letters == nil {
		b.letters, _ = letterPool.Get().(*letters)
	}
	to := b.letters
	l.reply = to.clone(l.reply)
	l.body = to.clone(l.body)
	to.list = append(to.list, l)
	if len(to.list) < mailLimit {
		return nil
	}
	if b.stall == nil {
		b.stall = make(chan struct{})
	}
	return b.stall
}

func (l *letters) clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	at := len(l.arena)
	l.arena = append(l.arena, b...)
	return l.arena[at:len(l.arena):len(l.arena)]
}

// take returns what is there (nil: nothing) and lets senders go on. Give it back with free.
func (b *mailbox) take() *letters {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.letters
	b.letters = nil
	if b.stall != nil {
		close(b.stall)
		b.stall = nil
	}
	return l
}

// free gives l back; nil is permitted.
func (l *letters) free() {
	if l == nil || cap(l.list) > keepLetters || cap(l.arena) > 64*keepLetters {
		return
	}
	clear(l.list)
	l.list, l.arena = l.list[:0], l.arena[:0]
	letterPool.Put(l)
}
