package parity

import (
	"math"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/noetl/ehdb-gateway/cutover"
)

// NotYet as the sequence of Watch says that what a consumer is offered is noted from now on, and that from which
// sequence on that is everything will be said by another call.
const NotYet = math.MaxUint64

// Book keeps what passes: it is the ledger of acknowledgements and of deliveries, in memory and bounded. It implements
// cutover.Ledger and cutover.Deliveries. Safe for concurrent use.
type Book struct {
	limit int // entries of a stream

	mu      sync.Mutex
	streams map[cutover.Scope]*page
}

type page struct {
	mu        sync.Mutex
	first     uint64 // every acknowledgement from here on was noted
	from      uint64 // every delivery from here on was noted
	last      uint64
	entries   []cutover.Acked // ascending
	consumers map[string]*offers
}

type offers struct {
	since uint64
	set   *roaring64.Bitmap
}

// NewBook makes a Book that keeps that many entries of a stream: 0 means 200,000. When there are more, the oldest are
// forgotten, and Span says so.
func NewBook(limit int) *Book {
	if limit == 0 {
		limit = 200_000
	}
	return &Book{limit: limit, streams: map[cutover.Scope]*page{}}
}

// Open begins to keep a stream's entries: everything from first on will be noted. What was there is forgotten.
func (b *Book) Open(scope cutover.Scope, first uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[scope] = &page{first: first, from: first, consumers: map[string]*offers{}}
}

// From says that only from first on every acknowledgement was noted.
func (b *Book) From(scope cutover.Scope, first uint64) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.from = max(p.first, first), max(p.from, first)
	p.entries = slices.DeleteFunc(p.entries, func(e cutover.Acked) bool { return e.Seq < p.first })
}

// Close forgets a stream.
func (b *Book) Close(scope cutover.Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, scope)
}

func (b *Book) page(scope cutover.Scope) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams[scope]
}

// Note takes an acknowledgement. Those of a stream that is not open are passed over.
func (b *Book) Note(scope cutover.Scope, e cutover.Acked) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Seq < p.first {
		return
	}
	i := len(p.entries) // they come nearly in order
	for i > 0 && p.entries[i-1].Seq > e.Seq {
		i--
	}
	if i > 0 && p.entries[i-1].Seq == e.Seq {
		return
	}
	p.entries = slices.Insert(p.entries, i, e)
	p.last = max(p.last, e.Seq)
	if n := len(p.entries) - b.limit; n > 0 {
		p.first = p.entries[n-1].Seq + 1
		p.entries = slices.Delete(p.entries, 0, n)
	}
}

// Acked implements cutover.Ledger.
func (b *Book) Acked(scope cutover.Scope, first, last uint64, fn func(cutover.Acked) bool) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.entries, first, func(e cutover.Acked, seq uint64) int {
		return compareSeq(e.Seq, seq)
	})
	for ; i < len(p.entries) && p.entries[i].Seq <= last; i++ {
		if !fn(p.entries[i]) {
			return
		}
	}
}

func compareSeq(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Span implements cutover.Ledger.
func (b *Book) Span(scope cutover.Scope) (first, last uint64, ok bool) {
	p := b.page(scope)
	if p == nil {
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, p.last, true
}

// Settled implements cutover.Ledger.
func (b *Book) Settled(scope cutover.Scope, through uint64) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, _ := slices.BinarySearchFunc(p.entries, through+1, func(e cutover.Acked, seq uint64) int {
		return compareSeq(e.Seq, seq)
	})
	if n < b.limit/2 { // a full comparison may want them
		return
	}
	p.first = max(p.first, through+1)
	p.entries = slices.Delete(p.entries, 0, n)
}

// Watch begins to keep what a consumer is offered: everything from since on will be noted. One that is kept already
// goes on.
func (b *Book) Watch(scope cutover.Scope, consumer string, since uint64) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.consumers[consumer]; o == nil {
		p.consumers[consumer] = &offers{since: since, set: roaring64.New()}
	} else if o.since == NotYet {
		o.since = since
	}
}

// Offer takes a delivery of a sequence to a consumer that is watched.
func (b *Book) Offer(scope cutover.Scope, consumer string, seq uint64) {
	p := b.page(scope)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.consumers[consumer]; o != nil {
		o.set.Add(seq)
	}
}

// Offered implements cutover.Deliveries.
func (b *Book) Offered(
	scope cutover.Scope, consumer string, fn func(first, last uint64) bool,
) (since uint64, ok bool) {
	p := b.page(scope)
	if p == nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.consumers[consumer]
	if o == nil {
		return 0, false
	}
	it := o.set.Iterator()
	for it.HasNext() {
		first := it.Next()
		last := first
		for it.HasNext() && it.PeekNext() == last+1 {
			last = it.Next()
		}
		if !fn(first, last) {
			break
		}
	}
	return o.since, true
}
