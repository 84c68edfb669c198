package jetstreamapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// make makes or changes streams, each "NAME CONFIG".
func (p *party) make(tb testing.TB, verb string, streams ...string) {
	tb.Helper()
	for _, s := range streams {
		name, cfg, _ := strings.Cut(s, " ")
		p.must(tb, nil, "$JS.API.STREAM."+verb+"."+name, fmt.Sprintf(`{"name":%q,%s}`, name, cfg))
	}
}

// put publishes n messages and waits for their PubAcks.
func (p *party) put(tb testing.TB, subject string, n int) {
	tb.Helper()
	for i := range n {
		p.must(tb, nil, subject, fmt.Sprint(i))
	}
}

func (p *party) info(tb testing.TB, stream string) *server.StreamInfo {
	tb.Helper()
	var resp jsapi.StreamInfoResponse
	p.must(tb, &resp, "$JS.API.STREAM.INFO."+stream, "")
	return resp.StreamInfo
}

// until waits until f has nothing to complain of.
func until(tb testing.TB, f func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(answerTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	tb.Fatal(err)
}

// holds waits until a stream has n messages.
func (p *party) holds(tb testing.TB, stream string, n uint64) {
	tb.Helper()
	until(tb, func() error {
		if i := p.info(tb, stream); i.State.Msgs != n {
			return fmt.Errorf("%s has %d messages, want %d", stream, i.State.Msgs, n)
		}
		return nil
	})
}

// A source whose messages its stream cannot take waits, says why and by how much it is behind, and holds up neither
// other sources nor the API. Once there is room it goes on, and nothing is missing.
func TestStalledSourceHoldsUpNobody(t *testing.T) {
	b := bus.NewRouter()
	startService(t, testOptions(b, t.TempDir()))
	p := newParty(t, b, "$G")
	p.make(t, "CREATE", `A "subjects":["a"]`, `B "subjects":["b"]`, `BIG "subjects":["big"]`)
	p.put(t, "a", 10)
	p.make(t, "CREATE", `FULL "sources":[{"name":"A"}],"discard":"new","max_msgs":4`, `M "mirror":{"name":"B"}`,
		`SMALL "sources":[{"name":"BIG"},{"name":"B"}],"max_msg_size":120`)
	p.holds(t, "FULL", 4)
	p.must(t, nil, "big", strings.Repeat("x", 200))
	p.put(t, "b", 5)
	p.holds(t, "M", 5)
	p.holds(t, "SMALL", 5)
	until(t, func() error {
		full, small := p.info(t, "FULL").Sources[0], p.info(t, "SMALL").Sources[0]
		switch {
		case full.Lag != 6 || full.Error == nil || !strings.Contains(full.Error.Description, "maximum messages exceeded"):
			return fmt.Errorf("FULL: %+v %w", full, full.Error)
		case small.Lag != 1 || small.Error == nil || small.Error.ErrCode != 10054:
			return fmt.Errorf("SMALL: %+v %w", small, small.Error)
		}
		return nil
	})
	p.make(t, "UPDATE", `FULL "sources":[{"name":"A"}],"discard":"new","max_msgs":100`)
	p.holds(t, "FULL", 10)
	until(t, func() error {
		if s := p.info(t, "FULL").Sources[0]; s.Lag != 0 || s.Error != nil || s.Seq != 10 {
			return fmt.Errorf("after there was room: %+v %w", s, s.Error)
		}
		return nil
	})
}

// A stream that deletes what nobody needs keeps it for a source, also one that is stalled, until that has stored it.
func TestOriginKeepsForItsSources(t *testing.T) {
	for _, retention := range []string{"interest", "workqueue"} {
		t.Run(retention, func(t *testing.T) {
			b := bus.NewRouter()
			startService(t, testOptions(b, t.TempDir()))
			p := newParty(t, b, "$G")
			p.make(t, "CREATE", `O "subjects":["o"],"retention":"`+retention+`"`,
				`S "sources":[{"name":"O"}],"discard":"new","max_msgs":2`)
			until(t, func() error {
				if p.info(t, "S").Sources[0].Active < 0 {
					return errors.New("the source is not there")
				}
				return nil
			})
			p.put(t, "o", 5)
			p.holds(t, "S", 2)
			p.holds(t, "O", 3)
			p.make(t, "UPDATE", `S "sources":[{"name":"O"}],"discard":"new","max_msgs":4`)
			p.holds(t, "S", 4)
			p.holds(t, "O", 1)
			p.make(t, "UPDATE", `S "subjects":["s"]`) // no source any more
			left := uint64(0)
			if retention == "workqueue" {
				left = 1 // it waits for the next who takes it
			}
			p.holds(t, "O", left)
		})
	}
}

// A source goes on where it stopped, though what it had copied is gone, and after its configuration was away.
func TestSourcePositionOutlivesItsMessages(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.p.make(t, "CREATE", `O "subjects":["o"]`, `S "sources":[{"name":"O"}]`, `M "mirror":{"name":"O"}`)
	l.p.put(t, "o", 5)
	l.p.holds(t, "S", 5)
	l.p.holds(t, "M", 5)
	l.p.must(t, nil, "$JS.API.STREAM.PURGE.S", "")
	l.p.must(t, nil, "$JS.API.STREAM.PURGE.M", "")
	l.end(t)
	l = begin(t, fs)
	defer func() { l.end(t) }()
	l.p.put(t, "o", 2)
	l.p.holds(t, "S", 2)
	l.p.holds(t, "M", 2)
	if i := l.p.info(t, "M"); i.State.FirstSeq != 6 || i.State.LastSeq != 7 {
		t.Errorf("the mirror has %d..%d", i.State.FirstSeq, i.State.LastSeq)
	}
	l.p.make(t, "UPDATE", `S "subjects":["s"]`)
	l.p.put(t, "o", 1)
	l.p.make(t, "UPDATE", `S "subjects":["s"],"sources":[{"name":"O"}]`) // the messages tell where it was
	l.p.holds(t, "S", 3)
	if s := l.p.info(t, "S").Sources[0]; s.Seq != 8 || s.Lag != 0 {
		t.Errorf("source: %+v", s)
	}
}

// The data directory fails and is opened again, with links at work: they go on, and copy everything once.
func TestLinksAfterTheDirectoryFailed(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem(), func(vfs.Op) error { return nil })
	l := begin(t, fault)
	defer func() { l.end(t) }()
	l.p.make(t, "CREATE", `O "subjects":["o"]`, `S "sources":[{"name":"O"}]`, `M "mirror":{"name":"O"},"storage":"memory"`)
	l.p.put(t, "o", 3)
	l.p.holds(t, "S", 3)
	l.p.holds(t, "M", 3)
	mend := breakDisk(fault)
	if refused := l.p.request(t, "o", "", "not acknowledged"); errCode(t, refused) == 0 {
		t.Errorf("a message on a broken disk got %v", refused)
	}
	eventually(t, "health tells", func() bool { return len(l.svc.Health("", "", "")) > 0 })
	mend()
	eventually(t, "the directory serves again", func() bool { return len(l.svc.Health("", "", "")) == 0 })
	l.p.put(t, "o", 2)
	last := l.p.info(t, "O").State.LastSeq
	l.p.holds(t, "S", last)
	l.p.holds(t, "M", last)
}

// Nothing is left of streams that copy, and were deleted.
func TestDeletedStreamsLeaveNoLinks(t *testing.T) {
	b := bus.NewRouter()
	s := startService(t, testOptions(b, t.TempDir()))
	p := newParty(t, b, "$G")
	for range 3 {
		p.make(t, "CREATE", `O "subjects":["o"]`, `S "sources":[{"name":"O"}]`, `M "mirror":{"name":"O"}`)
		p.put(t, "o", 3)
		p.holds(t, "S", 3)
		p.holds(t, "M", 3)
		for _, name := range []string{"O", "S", "M"} {
			p.must(t, nil, "$JS.API.STREAM.DELETE."+name, "")
		}
	}
	var left []string
	s.fileStore().EachLog(func(_ storage.LogID, name string, _ bool) { left = append(left, name) })
	if len(left) > 1 { // the catalog
		t.Errorf("logs are left: %q", left)
	}
}
