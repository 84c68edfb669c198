package pilot

import (
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// TestStrays: sequences that the ledger lacks are strays, but for as many as clients have published without asking for an
// acknowledgement, and those whose acknowledgement passes late. They are forgotten after a day.
func TestStrays(t *testing.T) {
	scope := cutover.Scope{Account: "$G", Stream: "S"}
	book := parity.NewBook(0)
	book.Open(scope, 11)
	ack := func(seqs ...uint64) {
		for _, seq := range seqs {
			book.Note(scope, cutover.Acked{Seq: seq})
		}
	}
	var s strays
	at := time.Unix(1_700_000_000, 0)
	var waits time.Duration // how long the oldest publish has waited for its acknowledgement
	look := func(last, unasked uint64) (news uint64) {
		news = s.look(scope, strayLook{at, last, unasked, at.Add(-waits)}, book)
		at = at.Add(strayGrace)
		return news + s.look(scope, strayLook{at, last, unasked, at.Add(-waits)}, book)
	}
	want := func(n uint64) {
		t.Helper()
		if got, ok := s.found(scope); !ok || got != n {
			t.Fatalf("%d strays (%t), want %d", got, ok, n)
		}
	}
	if _, ok := s.found(scope); ok || look(20, 0) != 0 {
		t.Fatal("looked before it was begun")
	}
	s.begin(scope, 10, 5)
	ack(11, 13)
	waits = 2 * strayGrace
	if n := look(14, 5); n != 0 {
		t.Fatalf("%d that may be clients' own", n)
	}
	waits = 0
	if n := look(14, 5); n != 2 { // 12 and 14
		t.Fatalf("%d new ones", n)
	}
	ack(12) // late
	if n := look(14, 5); n != 0 {
		t.Fatalf("%d new ones", n)
	}
	want(1)
	look(15, 6) // one without an acknowledgement
	want(1)
	look(15+3*strayKept, 6)
	want(1 + 3*strayKept)
	at = at.Add(strayRecall)
	look(15+3*strayKept, 6)
	want(1 + 3*strayKept)
	at = at.Add(strayExpiry)
	look(15+3*strayKept, 6)
	want(0)
	if n := look(16+3*strayKept, 6); n != 1 {
		t.Fatalf("%d new ones", n)
	}
	s.pause(scope)
	if _, ok := s.found(scope); ok {
		t.Fatal("looked while the ledger begins anew")
	}
}
