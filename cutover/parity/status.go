package parity

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// MarshalJSON writes the counts by name, with "examined" and "accounted_for".
func (c Counts) MarshalJSON() ([]byte, error) {
	m := map[string]any{"accounted_for": c.Accounted()}
	for k, v := range c.Map() {
		m[k] = v
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Counts) UnmarshalJSON(b []byte) error {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*c = Counts{}
	for k, v := range m {
		if k == "accounted_for" {
			continue
		}
		to := &c.Examined
		if k != "examined" {
			var s State
			if err := s.UnmarshalText([]byte(k)); err != nil {
				return err
			}
			to = &c.By[s]
		}
		if err := json.Unmarshal(v, to); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// Digest are the digests of both sides over everything that was compared, up to Through.
type Digest struct {
	Authority string    `json:"authority"`
	Copy      string    `json:"copy"`
	Equal     bool      `json:"equal"`
	Through   uint64    `json:"through"`
	At        time.Time `json:"at"`
	Differing []Range   `json:"differing_ranges,omitempty"` // at most ten
}

// Status is what is known of a stream's parity. Times are when it was so: it is worth nothing without its age.
type Status struct {
	Scope   cutover.Scope `json:"scope"`
	Reverse bool          `json:"reverse"`
	At      time.Time     `json:"at"` // of the last comparison that worked
	Error   string        `json:"error,omitempty"`
	ErrorAt time.Time     `json:"error_at,omitzero"`
	// Outcome is match, divergent, not_comparable, pending_mirror (all is younger than the window), suspended or
	// authoritative_empty.
	Outcome string `json:"outcome"`
	Counts  Counts `json:"counts"`
	Digest  Digest `json:"digest"`

	NATSLast   uint64 `json:"nats_last"`
	EHDBLast   uint64 `json:"ehdb_last"`
	LedgerLast uint64 `json:"ledger_last"`
	LedgerSeen uint64 `json:"ledger_examined"` // acknowledgements that were compared
	// Unacknowledged counts records that no noted acknowledgement tells of: published around the gateway, or without
	// asking for one.
	Unacknowledged     uint64   `json:"unacknowledged"`
	UnacknowledgedSeqs []uint64 `json:"unacknowledged_seqs,omitempty"` // the latest

	Window      float64           `json:"window_seconds"`
	Lag         LagStatus         `json:"lag"`
	Reasons     map[string]uint64 `json:"not_comparable_reasons,omitempty"`
	Healed      uint64            `json:"healed"`
	Regressions uint64            `json:"regressions"`
	Suspended   string            `json:"suspended,omitempty"` // why

	// Complete is when everything was last compared from the first record on, and Attached since when it is compared as
	// it is configured now.
	Complete  time.Time        `json:"complete,omitzero"`
	Attached  time.Time        `json:"attached"`
	Consumers []ConsumerReport `json:"consumers,omitempty"`
	// DeliveryAt is when the consumers were last looked at.
	DeliveryAt    time.Time `json:"delivery_at,omitzero"`
	DeliveryError string    `json:"delivery_error,omitempty"`

	settled uint64
}

// LagStatus is Lag in seconds.
type LagStatus struct {
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
	Max float64 `json:"max_seconds"`
	N   uint64  `json:"n"`
}

// maxRanges is how many differing ranges a status names.
const maxRanges = 10

// statusOf sums up main.
func (w *watch) statusOf(p *Pair) Status {
	g, now := &w.main, w.e.o.Clock()
	a, c := g.leaves.digests()
	lag := w.lags.sum()
	st := Status{
		Scope: p.Scope, Reverse: p.Reverse, At: now, Counts: g.Counts(),
		NATSLast: g.bounds.last, EHDBLast: g.bounds.copyLast, LedgerLast: g.bounds.ledgerLast, LedgerSeen: g.ledgerSeen,
		Digest:         Digest{Authority: hexHash(a), Copy: hexHash(c), Equal: a == c, Through: g.Through, At: now},
		Unacknowledged: g.unacked, UnacknowledgedSeqs: append([]uint64(nil), g.unackedLately...),
		Window: w.window().Seconds(),
		Lag:    LagStatus{P50: lag.P50.Seconds(), P99: lag.P99.Seconds(), Max: lag.Max.Seconds(), N: lag.N},
		Healed: g.healed, Regressions: g.regressions, Attached: w.attached, settled: g.settled.Examined,
	}
	if p.Reverse {
		st.NATSLast, st.EHDBLast = st.EHDBLast, st.NATSLast
	}
	if a != c {
		st.Digest.Differing = g.leaves.ranges()
		st.Digest.Differing = st.Digest.Differing[:min(len(st.Digest.Differing), maxRanges)]
	}
	for reason, n := range g.reasons {
		if n > 0 {
			if st.Reasons == nil {
				st.Reasons = map[string]uint64{}
			}
			st.Reasons[reason] = n
		}
	}
	if w.s.Expected != nil {
		_, st.Suspended = w.s.Expected()
	}
	st.Complete = w.complete
	st.Outcome = outcomeOf(&st)
	return st
}

func outcomeOf(st *Status) string {
	n := &st.Counts
	switch {
	case n.Diverged() > 0 || !st.Digest.Equal:
		return "divergent"
	case n.By[NotComparable] > 0:
		return "not_comparable"
	case n.Examined == 0:
		return "authoritative_empty"
	case n.By[Suspended] > 0 && n.By[Match] == 0:
		return "suspended"
	case n.By[Match] == 0 && n.By[Pending] > 0:
		return "pending_mirror"
	default:
		return "match"
	}
}

func (w *watch) status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Runs returns the full comparisons, the latest last.
func (w *watch) Runs() []Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Run(nil), w.runs...)
}

// Status returns what is known of a stream.
func (e *Engine) Status(scope cutover.Scope) (Status, error) {
	w, err := e.watch(scope)
	if err != nil {
		return Status{}, err
	}
	st := w.status()
	if st.Scope.Stream == "" {
		st.Scope, st.Attached, st.Outcome = scope, w.attached, "not yet compared"
	}
	return st, nil
}

// Scopes returns what is compared.
func (e *Engine) Scopes() []cutover.Scope {
	var out []cutover.Scope
	for _, w := range e.all() {
		out = append(out, w.s.Scope)
	}
	return out
}

// Full asks for a comparison from the first record on. It runs beside the usual one and takes its place when it is
// done.
func (e *Engine) Full(scope cutover.Scope) error {
	w, err := e.watch(scope)
	if err != nil {
		return err
	}
	w.wish()
	e.hurry()
	return nil
}

// StopFull stops a comparison of all, or of a part. What was known before stays.
func (e *Engine) StopFull(scope cutover.Scope) error {
	w, err := e.watch(scope)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopFull, w.wantFull, w.wantPart = true, false, nil
	return nil
}

// Runs returns the full comparisons of a stream, the latest last.
func (e *Engine) Runs(scope cutover.Scope) ([]Run, error) {
	w, err := e.watch(scope)
	if err != nil {
		return nil, err
	}
	return w.Runs(), nil
}
