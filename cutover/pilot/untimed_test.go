package pilot

import (
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// What was published here between a flip and a rollback has other times on the servers, for good.
func TestUntimed(t *testing.T) {
	s, other := cutover.Scope{Account: "$G", Stream: "S"}, cutover.Scope{Account: "$G", Stream: "O"}
	journal := []flip.Entry{
		{Scope: s, Event: flip.EventShadow},
		{Scope: s, Event: flip.EventFlip, Last: 10},
		{Scope: other, Event: flip.EventFlip, Last: 1},
		{Scope: s, Event: flip.EventRollback, Last: 20},
		{Scope: s, Event: flip.EventFlip, Last: 30},
	}
	of := untimed(journal, s)
	for seq, want := range map[uint64]bool{10: false, 11: true, 20: true, 21: false, 30: false, 31: true, 1 << 40: true} {
		if of(seq) != want {
			t.Errorf("%d: %v", seq, !want)
		}
	}
	if of = untimed(append(journal, flip.Entry{Scope: s, Event: flip.EventForget}), s); of(15) || of(31) {
		t.Error("a stream that was forgotten is copied anew")
	}
}
