package parity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// fixture is a small made-up stream on all sides, for the controls. Nothing of it is stored anywhere.
type fixture struct {
	now             time.Time
	authority, copy memory
	ledger          notes
}

// fixtureScope is reserved: no account has this name.
var fixtureScope = cutover.Scope{Account: "$EHDB", Stream: "parity_controls"}

const (
	fixtureSize   = 8
	fixtureWindow = 10 * time.Second
)

// newFixture makes a stream whose records are a minute old, but for the last, which is as old as the caller says.
func newFixture(now time.Time, newest time.Duration) *fixture {
	f := &fixture{now: now}
	for seq := uint64(1); seq <= fixtureSize; seq++ {
		at := now.Add(-time.Minute + time.Duration(seq)*time.Millisecond) //nolint:gosec // a handful
		if seq == fixtureSize {
			at = now.Add(-newest)
		}
		id := strconv.FormatUint(seq, 10)
		r := cutover.Record{
			Seq: seq, Time: at.UnixNano(), Subject: []byte("control." + id),
			Header: []byte(
				"NATS/1.0\r\nNats-Msg-Id: " + id + "\r\nKind: control\r\n\r\n",
			), Data: []byte("payload " + id),
		}
		f.authority.records = append(f.authority.records, r)
		f.copy.records = append(f.copy.records, cloneRecord(&r))
		f.ledger.entries = append(f.ledger.entries, cutover.Acked{
			Seq: seq, Subject: string(r.Subject), MsgID: id, When: r.Time,
			Hash: cutover.Hash(r.Subject, r.Header, r.Data),
		})
	}
	f.authority.last, f.copy.last = fixtureSize, fixtureSize
	return f
}

func (f *fixture) pair() *Pair {
	return &Pair{
		Scope: fixtureScope, Authority: &f.authority, Copy: &f.copy, Ledger: &f.ledger, Config: &server.StreamConfig{},
		Settled: f.now.Add(-fixtureWindow).UnixNano(), Now: f.now.UnixNano(), Removal: int64(fixtureWindow),
		Expected: ^uint64(0),
	}
}

func cloneRecord(r *cutover.Record) cutover.Record {
	return cutover.Record{
		Seq: r.Seq, Time: r.Time,
		Subject: slices.Clone(r.Subject), Header: slices.Clone(r.Header), Data: slices.Clone(r.Data),
	}
}

// memory is a stream of the fixture.
type memory struct {
	records []cutover.Record
	last    uint64
	bad     map[uint64]bool // records that cannot be read
}

var errFixture = errors.New("made unreadable by a control")

// State implements cutover.Reader.
func (m *memory) State(context.Context, bool) (server.StreamState, error) {
	st := server.StreamState{Msgs: uint64(len(m.records)), FirstSeq: m.last + 1, LastSeq: m.last}
	if len(m.records) > 0 {
		st.FirstSeq = m.records[0].Seq
	}
	return st, nil
}

// Read implements cutover.Reader.
func (m *memory) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	for i := range m.records {
		r := &m.records[i]
		if r.Seq < from {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var bad error
		if m.bad[r.Seq] {
			r, bad = nil, &cutover.UnreadableError{Seq: r.Seq, Err: errFixture}
		}
		if !fn(r, bad) {
			return nil
		}
	}
	return nil
}

// Get implements cutover.Reader.
func (m *memory) Get(_ context.Context, seq uint64) (*cutover.Record, error) {
	for i := range m.records {
		if r := &m.records[i]; r.Seq == seq {
			if m.bad[seq] {
				return nil, &cutover.UnreadableError{Seq: seq, Err: errFixture}
			}
			c := cloneRecord(r)
			return &c, nil
		}
	}
	return nil, fmt.Errorf("sequence %d: %w", seq, cutover.ErrNoRecord)
}

// drop takes a record out.
func (m *memory) drop(seq uint64) {
	m.records = slices.DeleteFunc(m.records, func(r cutover.Record) bool { return r.Seq == seq })
}

// at returns a record to be changed.
func (m *memory) at(seq uint64) *cutover.Record {
	i := slices.IndexFunc(m.records, func(r cutover.Record) bool { return r.Seq == seq })
	return &m.records[i]
}

// notes is the ledger of the fixture.
type notes struct{ entries []cutover.Acked }

// Acked implements cutover.Ledger.
func (n *notes) Acked(_ cutover.Scope, first, last uint64, fn func(cutover.Acked) bool) {
	for _, e := range n.entries {
		if e.Seq >= first && e.Seq <= last && !fn(e) {
			return
		}
	}
}

// Span implements cutover.Ledger.
func (n *notes) Span(cutover.Scope) (first, last uint64, ok bool) {
	if len(n.entries) == 0 {
		return 0, 0, false
	}
	return 1, n.entries[len(n.entries)-1].Seq, true
}

// Settled implements cutover.Ledger.
func (*notes) Settled(cutover.Scope, uint64) {}
