package relay

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// maxFlights bounds the publishes of one connection that are remembered until their PubAck.
const maxFlights = 1 << 16

// maxFlight is how long a publish is waited for. A server that was lost, or has lost the lead of the stream, with a
// publish in hand does not answer it any more, and clients do not wait that long either. If it was stored all the same,
// the copy has it: that is read back from the servers.
const maxFlight = 6 * time.Second

// flying is a publish that waits for its PubAck.
type flying struct {
	scope *Scope
	noted Noted
	since time.Time
}

// flights are those of one connection, by the subject of the answer: in order, where many share one.
type flights struct {
	waiting map[string][]flying
	count   int
	closed  bool
}

func (f *flights) has(subject []byte) bool {
	return f.count > 0 && len(f.waiting[string(subject)]) > 0
}

func (f *flights) add(reply []byte, p flying) bool {
	if f.closed || f.count >= maxFlights {
		return false
	}
	if f.waiting == nil {
		f.waiting = make(map[string][]flying)
	}
	f.waiting[string(reply)] = append(f.waiting[string(reply)], p)
	f.count++
	return true
}

func (f *flights) take(subject []byte) (p flying, ok bool) {
	list := f.waiting[string(subject)]
	if len(list) == 0 {
		return flying{}, false
	}
	if p = list[0]; len(list) == 1 {
		delete(f.waiting, string(subject))
	} else {
		f.waiting[string(subject)] = list[1:]
	}
	f.count--
	return p, true
}

// close gives up all of them: the connection has ended.
func (f *flights) close() {
	f.closed = true
	for _, list := range f.waiting {
		for i := range list {
			list[i].lost()
		}
	}
	f.waiting, f.count = nil, 0
}

// expire gives up those that are older than maxFlight.
func (f *flights) expire(now time.Time) {
	for reply, list := range f.waiting {
		n := 0
		for n < len(list) && now.Sub(list[n].since) > maxFlight {
			list[n].lost()
			n++
		}
		f.count -= n
		switch {
		case n == len(list):
			delete(f.waiting, reply)
		case n > 0:
			f.waiting[reply] = list[n:]
		}
	}
}

func (p *flying) lost() {
	p.scope.notes.unanswered.Add(1)
	p.landed()
}

func (p *flying) landed() {
	p.scope.aloft.add(p.since, -1)
	p.scope.flight.Add(-1)
}

// aloft counts the publishes on their way by when they were sent, in buckets: together they are longer than any publish
// is waited for.
type aloft [128]atomic.Int64

const aloftBucket = 100 * time.Millisecond

func (a *aloft) bucket(sent time.Time) *atomic.Int64 {
	return &a[sent.UnixMilli()/aloftBucket.Milliseconds()%int64(len(a))]
}

func (a *aloft) add(sent time.Time, n int64) { a.bucket(sent).Add(n) }

// since is a time before which nothing that is on its way was sent, as far as now is not much later than that.
func (a *aloft) since(now time.Time) time.Time {
	for age := len(a) - 1; age >= 0; age-- {
		at := now.Truncate(aloftBucket).Add(-time.Duration(age) * aloftBucket)
		if a.bucket(at).Load() > 0 {
			return at
		}
	}
	return now
}

// Settled is a time before which no publish was sent that still waits for its PubAck.
func (s *Scope) Settled(now time.Time) time.Time { return s.aloft.since(now) }

// sentAt notes when a publish was sent that has its PubAck.
func (s *Scope) sentAt(at time.Time) {
	for now := at.UnixNano(); ; {
		before := s.latest.Load()
		if before >= now || s.latest.CompareAndSwap(before, now) {
			return
		}
	}
}

// publish notes a message that goes to a stream under watch.
func (g *guide) publish(s *Scope, m *bus.Msg) {
	s.notes.published.Add(1)
	p := flying{scope: s, since: time.Now(), noted: Noted{
		Subject: string(m.Subject), Hash: cutover.Hash(m.Subject, m.Header, m.Data),
		MsgID: string(jsapi.HeaderValue(m.Header, jsapi.HeaderMsgID)),
	}}
	g.mu.Lock()
	s.aloft.add(p.since, 1)
	kept := g.flight.add(m.Reply, p)
	g.mu.Unlock()
	if !kept {
		p.lost()
	}
}

// answer takes the PubAck.
func (p *flying) answer(data []byte) {
	defer p.landed()
	var ack struct {
		Error     json.RawMessage `json:"error"`
		Stream    string          `json:"stream"`
		Seq       uint64          `json:"seq"`
		Duplicate bool            `json:"duplicate"`
	}
	n := &p.scope.notes
	switch err := json.Unmarshal(data, &ack); {
	case err != nil || ack.Error != nil || ack.Stream != p.scope.Name.Stream:
		n.refused.Add(1)
		return
	case ack.Duplicate:
		n.acknowledged.Add(1)
		n.duplicates.Add(1)
		return
	}
	n.acknowledged.Add(1)
	p.scope.sentAt(p.since)
	now := time.Now()
	p.noted.Seq, p.noted.Time, p.noted.Took = ack.Seq, now.UnixNano(), now.Sub(p.since)
	if f := p.scope.Acknowledged; f != nil {
		f(&p.noted)
	}
}
