package jetstreamapi

import (
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestProgressOfNone: who waits for a stream that is not there, as while it is filled anew, looks again.
func TestProgressOfNone(t *testing.T) {
	l := begin(t, vfs.NewMem())
	defer l.end(t)
	if seq, moved := l.svc.Cutover().Named("$G", "NONE").Progress(); seq != 0 {
		t.Error(seq)
	} else {
		select {
		case <-moved:
		case <-time.After(5 * time.Second):
			t.Error("who waits for it waits for ever")
		}
	}
}
