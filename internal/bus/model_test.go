package bus_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/subjects"
)

// model is a Router beside lists of what must be in it. Which member of a queue group is picked is chance: the model
// holds the pick to the members that may have it, learns it from the counters, and holds the sinks to it.
type model struct {
	router  *bus.Router
	parties []*modelParty
	watched map[string]*modelWatch
	sent    int
}

type modelParty struct {
	kind    bus.Kind
	id      bus.Identity
	session bus.Session
	sink    *bustest.Sink
	closed  bool
	subs    map[string]*modelSub
	batch   []string // what the sinks must get at the next Flush: "party sid message"
}

type modelSub struct {
	sub       *bus.Subscription
	party     *modelParty
	filter    string
	queue     string
	delivered int64
	max       int64
}

type modelWatch struct {
	interest bool // as last told
	cancel   func()
}

var modelSubjects = []string{"a", "b", "a.a", "a.b", "b.a", "a.b.a", "a.b.b", "b.b.b"}

var modelFilters = append([]string{"*", ">", "a.*", "*.b", "a.>", "a.b.>", "*.*.b", "*.>"}, modelSubjects...)

func newModel(t *rapid.T) *model {
	m := &model{router: bus.NewRouter(), watched: map[string]*modelWatch{}}
	kinds := []bus.Kind{bus.KindClient, bus.KindClient, bus.KindClient, bus.KindService, bus.KindMirror}
	for i, kind := range kinds {
		p := &modelParty{kind: kind}
		p.id = bus.Identity{Account: "A", ID: uint64(i), NoEcho: i%2 == 0}
		if i == 1 {
			p.id.Account = rapid.SampledFrom([]string{"A", "B"}).Draw(t, "account")
		}
		m.reopen(t, p)
		m.parties = append(m.parties, p)
	}
	return m
}

func (m *model) reopen(t *rapid.T, p *modelParty) {
	p.sink, p.closed, p.subs, p.batch = &bustest.Sink{}, false, map[string]*modelSub{}, nil
	session, err := m.router.Open(p.kind, p.id, p.sink)
	if err != nil {
		t.Fatal(err)
	}
	p.session = session
}

func (m *model) party(t *rapid.T) *modelParty { return rapid.SampledFrom(m.parties).Draw(t, "party") }

func (m *model) subscribe(t *rapid.T) {
	p := m.party(t)
	sid := strconv.Itoa(rapid.IntRange(1, 6).Draw(t, "sid"))
	s := &modelSub{party: p, filter: rapid.SampledFrom(modelFilters).Draw(t, "filter")}
	s.queue = rapid.SampledFrom([]string{"", "", "q", "r"}).Draw(t, "queue")
	sub, err := p.session.Subscribe(sid, s.filter, s.queue)
	switch had := p.subs[sid]; {
	case p.closed:
		if err == nil {
			t.Fatal("a closed session subscribed")
		}
	case err != nil:
		t.Fatal(err)
	case had != nil:
		if sub != had.sub {
			t.Fatalf("sid %s was replaced", sid)
		}
	default:
		s.sub = sub
		p.subs[sid] = s
	}
}

func (m *model) unsubscribe(t *rapid.T) {
	p := m.party(t)
	sid := strconv.Itoa(rapid.IntRange(1, 6).Draw(t, "sid"))
	limit := rapid.Int64Range(-1, 5).Draw(t, "max")
	p.session.Unsubscribe(sid, limit)
	if s := p.subs[sid]; s != nil {
		s.max = limit
		if limit <= s.delivered {
			delete(p.subs, sid)
		}
	}
}

// takers returns who may get what from publishes, by queue group; those without a group are under "".
func (m *model) takers(from *modelParty, subject string) map[string][]*modelSub {
	out := map[string][]*modelSub{}
	for _, p := range m.parties {
		if p.id.Account != from.id.Account || (p == from && p.id.NoEcho) ||
			(from.kind == bus.KindMirror && p.kind != bus.KindService) {
			continue
		}
		for _, sid := range slices.Sorted(maps.Keys(p.subs)) {
			if s := p.subs[sid]; subjects.Match(s.filter, subject) {
				out[s.queue] = append(out[s.queue], s)
			}
		}
	}
	return out
}

func (m *model) publish(t *rapid.T) {
	from := m.party(t)
	subject := rapid.SampledFrom(modelSubjects).Draw(t, "subject")
	for range rapid.IntRange(1, 4).Draw(t, "times") {
		m.sent++
		id := strconv.Itoa(m.sent)
		takers := m.takers(from, subject)
		got := from.session.Publish(&bus.Msg{Subject: []byte(subject), Data: []byte(id)})
		if from.closed {
			if got {
				t.Fatal("a closed session published")
			}
			continue
		}
		if got != (len(takers) > 0) {
			t.Fatalf("Publish(%q) reports interest %v; %d groups could take it", subject, got, len(takers))
		}
		for queue, subs := range takers {
			var took []*modelSub
			for _, s := range subs {
				for ; s.delivered < s.sub.Delivered(); s.delivered++ {
					took = append(took, s)
				}
			}
			if queue == "" && len(took) != len(subs) || queue != "" && len(took) != 1 {
				t.Fatalf("%d of %d in group %q took the message on %q", len(took), len(subs), queue, subject)
			}
			for _, s := range took {
				m.took(t, from, s, id)
			}
		}
	}
	if rapid.Bool().Draw(t, "flush") {
		m.flush(t, from)
	}
}

// took notes that s is owed a message, and ends s where it was the last.
func (m *model) took(t *rapid.T, from *modelParty, s *modelSub, id string) {
	sid := string(s.sub.SID)
	if s.party.subs[sid] != s {
		t.Fatalf("sid %s got a message after its last", sid)
	}
	from.batch = append(from.batch, fmt.Sprintf("%d %s %s", s.party.id.ID, sid, id))
	if s.max > 0 && s.delivered >= s.max {
		delete(s.party.subs, sid)
	}
}

// flush compares what the sinks got with what they were owed. All sinks are empty before.
func (m *model) flush(t *rapid.T, from *modelParty) {
	if from.session.Flush() != nil {
		t.Fatal("a stall out of nothing")
	}
	var got []string
	for _, p := range m.parties {
		last := 0
		for _, r := range p.sink.Take() {
			got = append(got, fmt.Sprintf("%d %s %s", p.id.ID, r.SID, r.Msg.Data))
			n, err := strconv.Atoi(string(r.Msg.Data))
			if err != nil || n < last {
				t.Fatalf("message %q after %d", r.Msg.Data, last)
			}
			last = n
		}
	}
	slices.Sort(got)
	slices.Sort(from.batch)
	if !slices.Equal(got, from.batch) {
		t.Fatalf("sinks got %q, were owed %q", got, from.batch)
	}
	from.batch = nil
}

// closeParty closes a session, or opens it again.
func (m *model) closeParty(t *rapid.T) {
	p := m.party(t)
	for _, q := range m.parties { // so that nobody owes it anything
		m.flush(t, q)
	}
	if p.closed {
		m.reopen(t, p)
		return
	}
	p.session.Close()
	p.closed = true
	clear(p.subs)
}

func (m *model) watch(t *rapid.T) {
	subject := rapid.SampledFrom(modelSubjects).Draw(t, "subject")
	if w := m.watched[subject]; w != nil {
		w.cancel()
		delete(m.watched, subject)
		return
	}
	w := &modelWatch{interest: m.listens("A", subject)}
	w.cancel = m.router.WatchListeners("A", subject, "", func(interest bool) {
		if interest == w.interest {
			t.Errorf("told twice that interest in %q is %v", subject, interest)
		}
		w.interest = interest
	})
	m.watched[subject] = w
}

// listens is Listens of the model, of no queue group.
func (m *model) listens(account, subject string) bool {
	for _, p := range m.parties {
		for _, s := range p.subs {
			if p.id.Account == account && s.filter == subject && s.queue == "" {
				return true
			}
		}
	}
	return false
}

func (m *model) interest(account, subject string) bool {
	for _, p := range m.parties {
		for _, s := range p.subs {
			if p.id.Account == account && subjects.Match(s.filter, subject) {
				return true
			}
		}
	}
	return false
}

func (m *model) check(t *rapid.T) {
	for _, account := range []string{"A", "B"} {
		total := 0
		for _, p := range m.parties {
			if p.id.Account != account {
				continue
			}
			total += len(p.subs)
			if n := p.session.NumSubscriptions(); n != len(p.subs) || n != len(p.session.Subscriptions()) {
				t.Fatalf("party %d has %d subscriptions, should have %d", p.id.ID, n, len(p.subs))
			}
		}
		s := m.router.AccountStats(account)
		if n := m.router.NumSubscriptions(account); n != total || n != s.Subscriptions || s.Inserts-s.Removes != int64(n) {
			t.Fatalf("account %s has %d subscriptions (%+v), should have %d", account, n, s, total)
		}
		for _, subject := range modelSubjects {
			if got, want := m.router.HasInterest(account, subject), m.interest(account, subject); got != want {
				t.Fatalf("HasInterest(%s, %q) = %v", account, subject, got)
			}
			if got, want := m.router.Listens(account, subject, ""), m.listens(account, subject); got != want {
				t.Fatalf("Listens(%s, %q) = %v", account, subject, got)
			}
		}
	}
	for subject, w := range m.watched {
		if want := m.listens("A", subject); w.interest != want {
			t.Fatalf("the watcher of %q was last told %v", subject, w.interest)
		}
	}
}

func TestRouterAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"subscribe":   m.subscribe,
			"subscribe 2": m.subscribe,
			"unsubscribe": m.unsubscribe,
			"publish":     m.publish,
			"publish 2":   m.publish,
			"flush":       func(t *rapid.T) { m.flush(t, m.party(t)) },
			"close":       m.closeParty,
			"watch":       m.watch,
			"":            m.check,
		})
	})
}
