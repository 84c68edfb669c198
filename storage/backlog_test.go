package storage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestSealerFallsBehind appends while the disk does not let parts be written: producers are asked to pause, those who do not
// are refused before more is kept in RAM than there is to be, deletions are still taken, and all goes on by itself when
// the disk does. Nothing that was taken is lost.
func TestSealerFallsBehind(t *testing.T) {
	const most = 1000
	fault := vfs.NewFault(vfs.NewMem(), nil)
	gate := make(chan struct{})
	fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.Contains(op.Path, partsDir+"/") {
			<-gate
		}
		return nil
	})
	o := Options{Dir: "data", FS: fault, Shards: 2, Seal: true, SealMaxAge: time.Hour, MaxUnsealed: most}
	s := open(t, o)
	l, err := s.CreateLog(LogSpec{Shards: []ShardID{1}, Name: "l"})
	if err != nil {
		t.Fatal(err)
	}
	var stall <-chan struct{}
	n := uint64(0)
	for ; n < 10*most; n++ {
		err := l.Append(&Record{Seq: n + 1, Key: []byte("k"), Data: []byte("data")}, nil)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.durable(); err != nil {
			t.Fatal(err)
		}
		if stall == nil {
			stall = s.Stall()
		}
	}
	if n < most || n > most+most/2 {
		t.Fatalf("%d records were taken, %d may be unsealed", n, most)
	}
	if stall == nil {
		t.Fatal("producers were not asked to pause before they were refused")
	}
	if _, err := l.Delete([]uint64{1}, false, nil); err != nil {
		t.Fatalf("a deletion is refused with messages: %v", err)
	}
	select {
	case <-stall:
		t.Fatal("producers were let go while nothing is sealed")
	default:
	}
	close(gate)
	select {
	case <-stall:
	case <-time.After(30 * time.Second):
		t.Fatal("producers were not let go")
	}
	for err = ErrFull; errors.Is(err, ErrFull); time.Sleep(time.Millisecond) {
		err = l.Append(&Record{Seq: n + 1, Key: []byte("k")}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if l, err = s.OpenLog(l.ID(), LogSpec{}); err != nil {
		t.Fatal(err)
	}
	if st := l.State(); st.Messages != n || st.LastSeq != n+1 {
		t.Fatalf("%d messages up to %d, want %d up to %d", st.Messages, st.LastSeq, n, n+1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
