package pilot

import (
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestFences: how long a stream was held is known from the journal, so after a restart too, with what was in vain since.
func TestFences(t *testing.T) {
	s, other := cutover.Scope{Account: "$G", Stream: "S"}, cutover.Scope{Account: "$G", Stream: "T"}
	at := time.Unix(1000, 0)
	moved := func(name cutover.Scope, to cutover.Role, after, held time.Duration) flip.Entry {
		return flip.Entry{Scope: name, Event: flip.EventReleased, Move: &flip.Move{To: to, At: at.Add(after), Fence: held}}
	}
	journal := []flip.Entry{
		{Scope: s, Event: flip.EventFlip},
		moved(s, cutover.Authority, 0, time.Second),
		moved(other, cutover.Authority, 0, time.Hour),
		{Scope: s, Event: flip.EventReleased},
		moved(s, cutover.Standby, time.Minute, 2*time.Second),
	}
	got := fences(journal, s, []face.Fence{{At: at.Add(time.Second), Kind: "rollback", Outcome: "in vain"}})
	want := []face.Fence{
		{At: at, Kind: "flip", Outcome: "done", Seconds: 1},
		{At: at.Add(time.Second), Kind: "rollback", Outcome: "in vain"},
		{At: at.Add(time.Minute), Kind: "rollback", Outcome: "done", Seconds: 2},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if got := fences(make([]flip.Entry, 0), s, nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
