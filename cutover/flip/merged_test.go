package flip

import (
	"slices"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
)

// TestMergedIDs: an id counts from when it passed here, where the servers' clock is behind.
func TestMergedIDs(t *testing.T) {
	known := []cutover.DedupEntry{{ID: "a", Seq: 1, Time: 100}, {ID: "c", Seq: 3, Time: 900}}
	passed := []cutover.DedupEntry{{ID: "a", Seq: 1, Time: 500}, {ID: "b", Seq: 2, Time: 600}, {ID: "c", Seq: 3, Time: 700}}
	want := []cutover.DedupEntry{{ID: "a", Seq: 1, Time: 500}, {ID: "b", Seq: 2, Time: 600}, {ID: "c", Seq: 3, Time: 900}}
	if got := merged(known, passed); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
