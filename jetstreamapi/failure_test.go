package jetstreamapi

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

var errBroken = errors.New("the disk is broken")

// breakDisk makes every sync and write fail until mend is called.
func breakDisk(f *vfs.Fault) (mend func()) {
	f.SetHook(vfs.FailKind(errBroken, vfs.OpSync, vfs.OpWrite))
	return func() { f.SetHook(func(vfs.Op) error { return nil }) }
}

func TestAFailedDiskIsOpenedAgain(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem(), func(vfs.Op) error { return nil })
	l := begin(t, fault)
	defer l.end(t)
	l.fill(t)
	l.p.must(t, nil, "$JS.API.CONSUMER.DELETE.S.RAM", "") // lives in memory beside a stream on disk: goes with it
	waiting := l.p.ask("$JS.API.CONSUMER.MSG.NEXT.W.Q", "", `{"batch":100,"expires":60000000000}`)
	want := l.picture(t)
	mend := breakDisk(fault)
	refused := l.p.request(t, "S.a", "", "not acknowledged")
	if errCode(t, refused) == 0 {
		t.Errorf("a message on a broken disk got %v", refused)
	}
	for a := receive(t, waiting); !strings.HasPrefix(a.header, "NATS/1.0 409 Server Shutdown"); a = receive(t, waiting) {
		if a.header != "" {
			t.Fatalf("the waiting pull got %v", a)
		}
	}
	eventually(t, "health tells", func() bool {
		h := l.svc.Health("", "", "")
		return len(h) > 0 && strings.Contains(h[0].Error, errBroken.Error())
	})
	if got := errCode(t, l.p.request(t, "$JS.API.STREAM.INFO.S", "", "")); got != 10194 {
		t.Errorf("info while the disk is broken: error %d", got)
	}
	l.p.must(t, nil, "M.a", "memory is not concerned")
	if got := errCode(t, l.p.request(t, "$JS.API.STREAM.CREATE.N", "", `{"name":"N"}`)); got == 0 {
		t.Error("a stream was made on a broken disk")
	}
	mend()
	eventually(t, "the directory serves again", func() bool { return len(l.svc.Health("", "", "")) == 0 })
	l.p.must(t, nil, "$JS.API.STREAM.DELETE.M", "")
	if got := l.picture(t); !sameButUnacknowledged(got, want) {
		t.Errorf("after the failure:\n%s\nbefore:\n%s", got, want)
	}
	if l.svc.Counters().Reopens != 1 {
		t.Errorf("%d reopens", l.svc.Counters().Reopens)
	}
	l.p.must(t, nil, "S.a", "acknowledged")
}

// sameButUnacknowledged compares configurations and creation times; what was not acknowledged may or may not be there.
func sameButUnacknowledged(got, want string) bool {
	heads := func(s string) (out []string) {
		for line := range strings.Lines(s) {
			if strings.Contains(line, `"name":`) && !strings.Contains(line, `"name":"M"`) && !strings.HasPrefix(line, " ") {
				out = append(out, line)
			}
		}
		return out
	}
	return strings.Join(heads(got), "") == strings.Join(heads(want), "")
}

// TestEveryAnswerHoldsAcrossFailures fails the disk again and again under load: what was acknowledged is there at the end.
func TestEveryAnswerHoldsAcrossFailures(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem(), func(vfs.Op) error { return nil })
	l := begin(t, fault)
	createStream(t, l.p, "S", "")
	var acked atomic.Uint64
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for range 4 {
		p := newParty(t, l.bus, "$G")
		publishers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if publishOne(p) {
					acked.Add(1)
				}
			}
		})
	}
	const failures = 3
	for range failures {
		before := acked.Load()
		eventually(t, "messages are acknowledged", func() bool { return acked.Load() > before+20 })
		mend := breakDisk(fault)
		eventually(t, "the failure is seen", func() bool { return len(l.svc.Health("", "", "")) > 0 })
		mend()
		eventually(t, "it is over", func() bool { return len(l.svc.Health("", "", "")) == 0 })
	}
	close(stop)
	publishers.Wait()
	var info jsapi.StreamInfoResponse
	l.p.must(t, &info, "$JS.API.STREAM.INFO.S", "")
	if info.State.Msgs < acked.Load() {
		t.Errorf("%d messages of %d acknowledged", info.State.Msgs, acked.Load())
	}
	l.end(t)
}

// publishOne reports whether a message was acknowledged.
func publishOne(p *party) bool {
	ch := p.ask("S.x", "", "x")
	if ch == nil {
		return false // the stream is not there right now
	}
	select {
	case a := <-ch:
		return strings.Contains(a.data, `"seq"`) && !strings.Contains(a.data, `"error"`)
	case <-time.After(answerTimeout):
		return false
	}
}

func TestAFullDiskRefusesAndResumes(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	defer l.end(t)
	createStream(t, l.p, "S", "")
	fs.SetCapacity(fs.Used())
	acked := uint64(0)
	big := strings.Repeat("x", 32<<10)
	var refused answer
	for range 1000 {
		refused = l.p.request(t, "S.x", "", big)
		if errCode(t, refused) != 0 {
			break
		}
		acked++
	}
	if !strings.Contains(refused.data, "space") {
		t.Errorf("on a full disk a message got %v", refused)
	}
	eventually(t, "health tells", func() bool {
		h := l.svc.Health("", "", "")
		return len(h) > 0 && strings.Contains(h[0].Error, "space")
	})
	var info jsapi.StreamInfoResponse
	l.p.must(t, &info, "$JS.API.STREAM.INFO.S", "")
	if info.State.Msgs != acked {
		t.Errorf("%d messages of %d acknowledged", info.State.Msgs, acked)
	}
	fs.SetCapacity(0)
	eventually(t, "it serves again by itself", func() bool { return len(l.svc.Health("", "", "")) == 0 })
	l.p.must(t, nil, "S.x", big)
	if l.svc.Counters().Reopens != 0 {
		t.Error("the directory was opened again for it")
	}
}
