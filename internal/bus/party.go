package bus

import (
	"maps"
	"slices"
)

// begin adds a subscription with a valid filter.
func (p *party) begin(sid, filter, queue string) (*Subscription, error) {
	sub, news, err := p.add(sid, filter, queue)
	news.tell()
	return sub, err
}

func (p *party) add(sid, filter, queue string) (*Subscription, news, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return nil, nil, ErrClosed
	}
	if p.out.Load() == nil {
		return nil, nil, ErrNoSink
	}
	if sub := p.subs[sid]; sub != nil {
		return sub, nil, nil
	}
	sub := &Subscription{SID: []byte(sid), Filter: filter, Queue: queue, owner: p}
	news, err := p.account.insert(sub)
	if err != nil {
		return nil, nil, err
	}
	if p.subs == nil {
		p.subs = make(map[string]*Subscription)
	}
	p.subs[sid] = sub
	if p.account.importsStreams() {
		news = append(news, p.account.shadow(sub)...)
	}
	return sub, news, nil
}

// Unsubscribe ends sid at once or after max messages in all (see Session).
func (p *party) Unsubscribe(sid string, limit int64) {
	p.mu.Lock()
	sub := p.subs[sid]
	p.mu.Unlock()
	if sub == nil || (limit > 0 && !sub.setMax(limit)) {
		return
	}
	p.end(sub)
}

// end removes sub, if it is there still.
func (p *party) end(sub *Subscription) {
	p.drop(sub).tell()
}

func (p *party) drop(sub *Subscription) news {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[string(sub.SID)] != sub {
		return nil
	}
	delete(p.subs, string(sub.SID))
	return p.remove(sub)
}

// remove takes subscriptions out of the account, and of those it imports from.
func (p *party) remove(subs ...*Subscription) news {
	n := p.account.remove(subs...)
	if p.account.importsStreams() {
		n = append(n, p.account.unshadow(subs...)...)
	}
	if p.account.asking.open.Load() > 0 {
		n = append(n, p.account.abandoned(subs)...)
	}
	return n
}

// Subscriptions returns the current subscriptions, in no order.
func (p *party) Subscriptions() []*Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.subs))
}

// NumSubscriptions returns the number of current subscriptions.
func (p *party) NumSubscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.subs)
}

// removeAtOnce is how many subscriptions Close removes under one hold of the account's lock.
const removeAtOnce = 128

// Close ends all subscriptions (see Session).
func (p *party) Close() {
	p.mu.Lock()
	p.closed.Store(true)
	p.out.Store(nil)
	subs := slices.Collect(maps.Values(p.subs))
	p.subs = nil
	p.account.counters.cached.Add(int64(-p.cached))
	p.cached = 0
	p.mu.Unlock()
	for chunk := range slices.Chunk(subs, removeAtOnce) {
		p.remove(chunk...).tell()
	}
}

// reportCached tells the account that the session's cache holds n results now.
func (p *party) reportCached(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n != p.cached && !p.closed.Load() {
		p.account.counters.cached.Add(int64(n - p.cached))
		p.cached = n
	}
}
