package parity

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Shown is one side's record as a finding shows it.
type Shown struct {
	Subject string    `json:"subject,omitempty"`
	Header  string    `json:"header,omitempty"` // canonical
	Data    []byte    `json:"data,omitempty"`   // the first maxShown bytes
	Size    int       `json:"size"`
	Hash    string    `json:"hash"`
	Time    time.Time `json:"time"`
	Error   string    `json:"error,omitempty"` // why it cannot be read
}

// maxShown is how much of a payload is kept.
const maxShown = 64 << 10

// Finding is a sequence on which the witnesses do not agree, with what each has.
type Finding struct {
	ID     uint64        `json:"id"`
	Scope  cutover.Scope `json:"scope"`
	Seq    uint64        `json:"seq"`
	State  State         `json:"state"`
	Reason string        `json:"reason,omitempty"`
	// Field and Offset are the first byte that differs, in the canonical form.
	Field     string         `json:"field,omitempty"`
	Offset    int            `json:"offset"`
	Authority *Shown         `json:"authority,omitempty"`
	Copy      *Shown         `json:"copy,omitempty"`
	Ledger    *cutover.Acked `json:"ledger,omitempty"`
	Found     time.Time      `json:"found"`
	Age       float64        `json:"age_seconds"`
	Healed    time.Time      `json:"healed,omitzero"`
}

// Canonical is the record's header in the form in which it is compared, a line a field.
func Canonical(header []byte) []byte {
	var out []byte
	for _, f := range cutover.Fields(nil, header) {
		out = append(out, f.Name...)
		out = append(out, ": "...)
		out = append(out, f.Value...)
		out = append(out, '\n')
	}
	return out
}

func show(r *cutover.Record) *Shown {
	data := r.Data[:min(len(r.Data), maxShown)]
	return &Shown{
		Subject: string(r.Subject), Header: string(Canonical(r.Header)), Data: slices.Clone(data), Size: len(r.Data),
		Hash: hexHash(cutover.Hash(r.Subject, r.Header, r.Data)), Time: time.Unix(0, r.Time).UTC(),
	}
}

func hexHash(h uint64) string { return fmt.Sprintf("%016x", h) }

// difference finds the first byte in which two records differ: no field if they do not.
//
//nolint:revive // timed as in chain
func difference(a, b *cutover.Record, timed bool) (field string, offset int) {
	for _, part := range []struct {
		name string
		a, b []byte
	}{
		{"subject", a.Subject, b.Subject},
		{"header", Canonical(a.Header), Canonical(b.Header)},
		{"data", a.Data, b.Data},
	} {
		if !bytes.Equal(part.a, part.b) {
			n := 0
			for n < len(part.a) && n < len(part.b) && part.a[n] == part.b[n] {
				n++
			}
			return part.name, n
		}
	}
	if timed && a.Time != b.Time {
		return "time", 0
	}
	return "", -1
}

// Explain reads one sequence from all sides, as they are now.
func (p *Pair) Explain(ctx context.Context, seq uint64) (*Finding, error) {
	b, err := p.bounds(ctx)
	if err != nil {
		return nil, err
	}
	f := &Finding{Scope: p.Scope, Seq: seq, Offset: -1, Found: time.Unix(0, p.Now).UTC()}
	var s sight
	s.expected = b.ledger && seq >= b.ledgerFirst
	if p.Ledger != nil {
		p.Ledger.Acked(p.Scope, seq, seq, func(e cutover.Acked) bool {
			s.l, f.Ledger = &e, &e
			return false
		})
	}
	var a, c *cutover.Record
	if a, s.a, f.Authority, err = p.side(ctx, p.Authority, seq); err != nil {
		return nil, err
	}
	if c, s.c, f.Copy, err = p.side(ctx, p.Copy, seq); err != nil {
		return nil, err
	}
	if a != nil && c != nil {
		f.Field, f.Offset = difference(a, c, p.timed(seq))
	}
	switch {
	case s.a == nil && s.c == nil && s.l == nil && seq > max(b.last, b.copyLast):
		return nil, fmt.Errorf("sequence %d: %w: the last one is %d", seq, cutover.ErrNoRecord, max(b.last, b.copyLast))
	case (s.a != nil || s.c != nil || s.l != nil) && s.time() > p.Settled:
		f.State, f.Reason = Pending, "younger than the window"
	case seq > p.Expected:
		f.State, f.Reason = Suspended, "the copy is not expected to have it yet"
	default:
		f.State, f.Reason = p.classify(b, seq, s)
	}
	return f, nil
}

func (p *Pair) side(ctx context.Context, r cutover.Reader, seq uint64) (*cutover.Record, *item, *Shown, error) {
	rec, err := r.Get(ctx, seq)
	switch {
	case errors.Is(err, cutover.ErrNoRecord):
		return nil, nil, nil, nil
	case unreadable(err):
		return nil, &item{seq: seq, err: err}, &Shown{Error: err.Error()}, nil
	case err != nil:
		return nil, nil, nil, err
	}
	it := itemOf(rec, nil)
	return rec, &it, show(rec), nil
}

// Query selects findings.
type Query struct {
	Scope       cutover.Scope // empty fields: any
	States      []State       // none: any
	First, Last uint64        // 0: any
	Healed      bool          // those that are equal by now too
	Limit       int           // 0: 100
}

// findings is the store of findings. It is bounded: healed ones make room first; after that new ones are counted,
// without their details.
type findings struct {
	mu      sync.Mutex
	limit   int
	bytes   int
	next    uint64
	byPlace map[place]*Finding
	dropped uint64
}

type place struct {
	scope cutover.Scope
	seq   uint64
}

func (s *findings) has(scope cutover.Scope, seq uint64, state State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byPlace[place{scope, seq}]
	return f != nil && f.State == state && f.Healed.IsZero()
}

func (f *Finding) size() int {
	n := 256
	for _, s := range []*Shown{f.Authority, f.Copy} {
		if s != nil {
			n += len(s.Data) + len(s.Header) + len(s.Subject)
		}
	}
	return n
}

// put keeps a finding, or counts that there was no room.
func (s *findings) put(f *Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{f.Scope, f.Seq}
	if was := s.byPlace[at]; was != nil {
		f.ID = was.ID
		if was.Healed.IsZero() {
			f.Found = was.Found
		}
		s.drop(at)
	} else {
		s.next++
		f.ID = s.next
	}
	if len(s.byPlace) >= s.limit || s.bytes+f.size() > s.limit*maxShown/16 {
		s.makeRoom()
	}
	if len(s.byPlace) >= s.limit {
		s.dropped++
		return
	}
	if s.bytes+f.size() > s.limit*maxShown/16 {
		for _, side := range []*Shown{f.Authority, f.Copy} {
			if side != nil {
				side.Data = nil
			}
		}
	}
	s.byPlace[at] = f
	s.bytes += f.size()
}

func (s *findings) drop(at place) {
	if f := s.byPlace[at]; f != nil {
		s.bytes -= f.size()
		delete(s.byPlace, at)
	}
}

// makeRoom lets go of the findings that healed.
func (s *findings) makeRoom() {
	for at, f := range s.byPlace {
		if !f.Healed.IsZero() {
			s.drop(at)
		}
	}
}

// heal marks those of a stream that are not open any more.
func (s *findings) heal(scope cutover.Scope, open func(seq uint64) bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, f := range s.byPlace {
		if at.scope == scope && f.Healed.IsZero() && !open(at.seq) {
			f.Healed = now
		}
	}
}

// forget drops all of a stream.
func (s *findings) forget(scope cutover.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.byPlace {
		if at.scope == scope {
			s.drop(at)
		}
	}
}

func (s *findings) find(q Query, now time.Time) []Finding {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Finding{}
	for _, f := range s.byPlace {
		if q.takes(f) {
			c := *f
			c.Age = now.Sub(c.Found).Seconds()
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Scope.String(), b.Scope.String()), cmp.Compare(a.Seq, b.Seq))
	})
	return out[:min(len(out), q.Limit)]
}

func (q *Query) takes(f *Finding) bool {
	return (q.Scope.Account == "" || q.Scope.Account == f.Scope.Account) &&
		(q.Scope.Stream == "" || q.Scope.Stream == f.Scope.Stream) &&
		(len(q.States) == 0 || slices.Contains(q.States, f.State)) &&
		f.Seq >= q.First && (q.Last == 0 || f.Seq <= q.Last) && (q.Healed || f.Healed.IsZero())
}
