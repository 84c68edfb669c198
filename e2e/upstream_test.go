package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// hub is a real nats-server that others mirror and source from. It can be restarted.
type hub struct {
	t    *testing.T
	s    *server.Server
	dir  string
	port int
}

func startHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{t: t, dir: t.TempDir(), port: -1}
	h.start()
	return h
}

func (h *hub) start() {
	h.t.Helper()
	h.s = startOracle(h.t, func(o *server.Options) { o.StoreDir, o.Port = h.dir, h.port })
	addr, ok := h.s.Addr().(*net.TCPAddr)
	if !ok {
		h.t.Fatal("the hub has no TCP address")
	}
	h.port = addr.Port
}

func (h *hub) restart() {
	h.t.Helper()
	h.s.Shutdown()
	h.s.WaitForShutdown()
	h.start()
}

func (h *hub) url() string { return h.s.ClientURL() }

// twin is a gateway that another one mirrors and sources from. It is killed to be restarted.
type twin struct {
	t *testing.T
	p *process
}

func (w *twin) url() string { return w.p.URL }

func (w *twin) restart() {
	w.t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(w.p.URL, "nats://"), ":")
	w.p.Kill()
	w.p = startGateway(w.t, w.p.dir, "-p", port)
}

// upstream is a server that others copy from.
type upstream interface {
	url() string
	restart()
}

// knowing is the configuration of a gateway that knows another server as hub.
func knowing(t *testing.T, u upstream) string {
	t.Helper()
	return writeFile(t, "gateway.conf",
		fmt.Sprintf("ehdb { allow_tmp_store: true, upstreams { hub { url: %q } } }", u.url()))
}

// everything returns the messages of a stream, by sequence.
func everything(t *testing.T, nc *nats.Conn, stream string) (out []*server.StoredMsg) {
	t.Helper()
	var info server.JSApiStreamInfoResponse
	noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.INFO."+stream, ""), &info))
	if info.Error != nil {
		t.Fatal(info.Error)
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		var m server.JSApiMsgGetResponse
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.MSG.GET."+stream, fmt.Sprintf(`{"seq":%d}`, seq)), &m))
		if m.Error == nil {
			out = append(out, m.Message)
		}
	}
	return out
}

// A mirror and sources of another server get all of it, once and in order, whatever is restarted or killed meanwhile.
func TestUpstream(t *testing.T) {
	t.Parallel()
	t.Run("nats-server", func(t *testing.T) { copyFrom(t, startHub(t)) })
	t.Run("gateway", func(t *testing.T) { copyFrom(t, &twin{t, startGateway(t, t.TempDir())}) })
}

func copyFrom(t *testing.T, h upstream) {
	t.Helper()
	there := connect(t, h.url())
	change(t, there, `
		STREAM.CREATE.O {"name":"O","subjects":["o.>"]}
		STREAM.CREATE.W {"name":"W","subjects":["w.>"],"retention":"workqueue"}`)
	p := startGateway(t, t.TempDir(), "-c", knowing(t, h))
	dir := p.dir
	change(t, connect(t, p.URL), `
		STREAM.CREATE.M {"name":"M","mirror":{"name":"O","external":{"api":"$JS.hub.API","deliver":""}}}
		STREAM.CREATE.S {"name":"S","sources":[{"name":"O","filter_subject":"o.a","external":{"api":"$JS.hub.API","deliver":""}},{"name":"W","subject_transforms":[{"src":"w.*","dest":"work.$1"}],"external":{"api":"$JS.hub.API","deliver":""}}]}`)
	const rounds, each = 4, 300
	for round := range rounds {
		for i := range each {
			m := nats.NewMsg([]string{"o.a", "o.b"}[i%2])
			m.Data = fmt.Appendf(nil, "%d.%d", round, i)
			if i%3 == 0 {
				m.Header = nats.Header{"Round": {fmt.Sprint(round)}, "A": {"x", "y"}}
			}
			if i == each/2 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				switch round {
				case 1, 3:
					there.Close()
					h.restart()
					there = connect(t, h.url())
				case 2:
					p.Kill()
					p = startGateway(t, dir, "-c", knowing(t, h))
				}
			}
			_, err := there.RequestMsg(m, 10*time.Second)
			noErr(t, err)
			_, err = there.Request("w.x", m.Data, 10*time.Second)
			noErr(t, err)
		}
		// It may be gone before the mirror has it; the source does not want it.
		change(t, there, fmt.Sprintf(`STREAM.MSG.DELETE.O {"seq":%d}`, round*each+2))
	}
	here := connect(t, p.URL)
	reaches(t, here, "M", rounds*each)
	reaches(t, here, "S", rounds*each+rounds*each/2)
	compareMirror(t, everything(t, there, "O"), everything(t, here, "M"))
	var fromO, fromW []string
	for _, m := range everything(t, here, "S") {
		if strings.HasPrefix(m.Subject, "work.") {
			fromW = append(fromW, string(m.Data))
		} else {
			fromO = append(fromO, string(m.Data))
		}
	}
	for i := range rounds * each {
		want := fmt.Sprintf("%d.%d", i/each, i%each)
		if fromW[i] != want || (i%2 == 0 && fromO[i/2] != want) {
			t.Fatalf("message %d: got %q of the work queue and %q of the stream, want %q", i, fromW[i], fromO[i/2], want)
		}
	}
	within(t, 10*time.Second, func() error { // what is copied is done
		var info server.JSApiStreamInfoResponse
		noErr(t, json.Unmarshal(request(t, there, "$JS.API.STREAM.INFO.W", ""), &info))
		if info.State.Msgs == 0 {
			return nil
		}
		said := request(t, there, "$JS.API.CONSUMER.LIST.W", "")
		var list server.JSApiConsumerListResponse
		noErr(t, json.Unmarshal(said, &list))
		// A nats-server that is shut down while it removes what one ack has covered never removes the rest.
		if _, ok := h.(*hub); ok && len(list.Consumers) == 1 && list.Consumers[0].AckFloor.Stream == info.State.LastSeq {
			return nil
		}
		return fmt.Errorf("%d messages are still in the work queue; its consumers: %s", info.State.Msgs, said)
	})
}

// compareMirror demands that a mirror has what its origin has, but for messages that were deleted there since.
func compareMirror(t *testing.T, origin, mirror []*server.StoredMsg) {
	t.Helper()
	bySeq := make(map[uint64]*server.StoredMsg)
	for _, m := range mirror {
		bySeq[m.Sequence] = m
	}
	if len(mirror) < len(origin) {
		t.Errorf("%d messages in the mirror, %d in the origin", len(mirror), len(origin))
	}
	for _, want := range origin {
		got := bySeq[want.Sequence]
		if got == nil || got.Subject != want.Subject || !bytes.Equal(got.Data, want.Data) || !got.Time.Equal(want.Time) {
			t.Fatalf("message %d: got %+v, want %+v", want.Sequence, got, want)
		}
		a, errA := nats.DecodeHeadersMsg(want.Header)
		b, errB := nats.DecodeHeadersMsg(got.Header)
		if fmt.Sprint(a, errA) != fmt.Sprint(b, errB) {
			t.Fatalf("message %d: header %v, want %v", want.Sequence, b, a)
		}
	}
}

// Whoever looks at a stream learns why it does not copy.
func TestUpstreamErrors(t *testing.T) {
	h := startHub(t)
	p := startGateway(t, t.TempDir(), "-c", knowing(t, h))
	nc := connect(t, p.URL)
	change(t, nc, `
		STREAM.CREATE.A {"name":"A","mirror":{"name":"NONE","external":{"api":"$JS.hub.API","deliver":""}}}
		STREAM.CREATE.B {"name":"B","mirror":{"name":"NONE","external":{"api":"$JS.nowhere.API","deliver":""}}}
		STREAM.CREATE.C {"name":"C","sources":[{"name":"NONE"}]}`)
	explains := func(stream, text string) {
		t.Helper()
		within(t, 10*time.Second, func() error {
			b := request(t, nc, "$JS.API.STREAM.INFO."+stream, "")
			if !bytes.Contains(b, []byte(text)) {
				return fmt.Errorf("%s does not say %q", b, text)
			}
			return nil
		})
	}
	explains("A", "stream not found")
	explains("B", "no JetStream API, import or ehdb.upstreams entry serves this prefix")
	explains("C", "stream not found")
	h.s.Shutdown()
	explains("A", "upstream hub is not connected")
	h.start()
	there := connect(t, h.s.ClientURL())
	change(t, there, `STREAM.CREATE.NONE {"name":"NONE","subjects":["n"]}`)
	_, err := there.Request("n", nil, 5*time.Second)
	noErr(t, err)
	reaches(t, nc, "A", 1)
}
