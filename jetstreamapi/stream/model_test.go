package stream_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// plainStream is a stream as simply as it can be said: a list of messages and the rules applied one message at a time.
type plainStream struct {
	cfg    server.StreamConfig
	live   []plainMessage
	last   uint64
	lastID string
	ids    map[string]uint64
}

type plainMessage struct {
	seq     uint64
	subject string
	size    uint64
}

// publication is a message to publish.
type publication struct {
	subject, data string
	header        []string // names and values
}

func (p *publication) get(name string) string {
	for i := 0; i < len(p.header); i += 2 {
		if p.header[i] == name {
			return p.header[i+1]
		}
	}
	return ""
}

func (s *plainStream) of(filter string) (seqs []uint64) {
	for _, m := range s.live {
		if subjects.Match(filter, m.subject) {
			seqs = append(seqs, m.seq)
		}
	}
	return seqs
}

func (s *plainStream) bytes() (n uint64) {
	for _, m := range s.live {
		n += m.size
	}
	return n
}

func (s *plainStream) remove(seq uint64) bool {
	n := len(s.live)
	s.live = slices.DeleteFunc(s.live, func(m plainMessage) bool { return m.seq == seq })
	return len(s.live) < n
}

func last(seqs []uint64) uint64 {
	if len(seqs) == 0 {
		return 0
	}
	return seqs[len(seqs)-1]
}

// refuse returns why a message is refused ("": it is not).
func (s *plainStream) refuse(p *publication, size uint64) string {
	if want := p.get("Nats-Expected-Last-Subject-Sequence"); want != "" {
		filter := p.subject
		if f := p.get("Nats-Expected-Last-Subject-Sequence-Subject"); f != "" {
			filter = f
		}
		if got := last(s.of(filter)); strconv.FormatUint(got, 10) != want {
			return fmt.Sprintf("10071 wrong last sequence: %d", got)
		}
	}
	if want := p.get("Nats-Expected-Last-Sequence"); want != "" && want != strconv.FormatUint(s.last, 10) {
		return fmt.Sprintf("10071 wrong last sequence: %d", s.last)
	}
	if seq, ok := s.ids[p.get("Nats-Msg-Id")]; ok && p.get("Nats-Msg-Id") != "" {
		return fmt.Sprintf("duplicate %d", seq)
	}
	if want := p.get("Nats-Expected-Last-Msg-Id"); want != "" && want != s.lastID {
		return "10070 wrong last msg ID: " + s.lastID
	}
	if p.get("Nats-Rollup") != "" && !s.cfg.AllowRollup {
		return "10111 rollup not permitted"
	}
	if s.cfg.Discard != server.DiscardNew {
		return ""
	}
	own := s.of(p.subject)
	replaces := s.cfg.MaxMsgsPer > 0 && int64(len(own)) >= s.cfg.MaxMsgsPer
	switch {
	case replaces && s.cfg.DiscardNewPer && p.get("Nats-Rollup") == "":
		return "10077 maximum messages per subject exceeded"
	case s.cfg.MaxMsgs > 0 && int64(len(s.live)) >= s.cfg.MaxMsgs && !replaces:
		return "10077 maximum messages exceeded"
	case s.cfg.MaxBytes > 0 && s.bytes()+size > uint64(s.cfg.MaxBytes):
		i := slices.IndexFunc(s.live, func(m plainMessage) bool { return replaces && m.seq == own[0] })
		if i < 0 || s.live[i].size < size {
			return "10077 maximum bytes exceeded"
		}
	}
	return ""
}

// publish returns the answer.
func (s *plainStream) publish(p *publication) string {
	size := uint64(30 + len(p.subject) + len(p.data))
	if len(p.header) > 0 {
		size += 4 + uint64(len(block(p.header...)))
	}
	if why := s.refuse(p, size); why != "" {
		return why
	}
	s.last++
	s.live = append(s.live, plainMessage{s.last, p.subject, size})
	s.lastID = p.get("Nats-Msg-Id")
	if s.lastID != "" {
		s.ids[s.lastID] = s.last
	}
	if own := s.of(p.subject); s.cfg.MaxMsgsPer > 0 && int64(len(own)) > s.cfg.MaxMsgsPer {
		s.remove(own[0])
	}
	s.trim()
	switch p.get("Nats-Rollup") {
	case "sub":
		s.keep(p.subject, 1)
	case "all":
		s.keep(">", 1)
	}
	return fmt.Sprintf("ack %d", s.last)
}

func (s *plainStream) trim() {
	if s.cfg.Discard == server.DiscardNew {
		return
	}
	for s.cfg.MaxMsgs > 0 && int64(len(s.live)) > s.cfg.MaxMsgs {
		s.live = s.live[1:]
	}
	for s.cfg.MaxBytes > 0 && s.bytes() > uint64(s.cfg.MaxBytes) {
		s.live = s.live[1:]
	}
}

func (s *plainStream) keep(filter string, n int) (removed uint64) {
	own := s.of(filter)
	for len(own) > n {
		s.remove(own[0])
		own = own[1:]
		removed++
	}
	return removed
}

// answerText puts an answer as the model does.
func answerText(body string) string {
	var ack server.JSPubAckResponse
	if err := unmarshal(body, &ack); err != nil {
		return err.Error()
	}
	switch {
	case ack.Error != nil:
		return fmt.Sprintf("%d %s", ack.Error.ErrCode, ack.Error.Description)
	case ack.Duplicate:
		return fmt.Sprintf("duplicate %d", ack.Sequence)
	}
	return fmt.Sprintf("ack %d", ack.Sequence)
}

func drawConfig(t *rapid.T) server.StreamConfig {
	pick := func(name string, values ...int64) int64 { return rapid.SampledFrom(values).Draw(t, name) }
	cfg := server.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, Duplicates: time.Hour,
		MaxMsgs:     pick("max_msgs", 0, 0, 1, 4),
		MaxBytes:    pick("max_bytes", 0, 0, 90, 300),
		MaxMsgsPer:  pick("max_per", 0, 0, 1, 2),
		AllowRollup: rapid.Bool().Draw(t, "rollup"),
	}
	if rapid.Bool().Draw(t, "discard_new") {
		cfg.Discard = server.DiscardNew
		cfg.DiscardNewPer = cfg.MaxMsgsPer > 0 && rapid.Bool().Draw(t, "new_per")
	}
	return cfg
}

func drawPublication(t *rapid.T, s *plainStream) publication {
	p := publication{
		subject: rapid.SampledFrom([]string{"s.a", "s.b", "s.c"}).Draw(t, "subject"),
		data:    strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 30, 100}).Draw(t, "size")),
	}
	near := func(n uint64) string {
		return strconv.FormatUint(n+uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "off")), 10)
	}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0:
		p.header = []string{"Nats-Expected-Last-Sequence", near(s.last)}
	case 1:
		p.header = []string{"Nats-Expected-Last-Subject-Sequence", near(last(s.of(p.subject)))}
	case 2:
		p.header = []string{
			"Nats-Expected-Last-Subject-Sequence", near(last(s.of("s.b"))),
			"Nats-Expected-Last-Subject-Sequence-Subject", "s.b",
		}
	case 3, 4:
		p.header = []string{"Nats-Msg-Id", rapid.StringMatching("[a-e]").Draw(t, "id")}
	case 5:
		p.header = []string{"Nats-Expected-Last-Msg-Id", rapid.StringMatching("[a-e]").Draw(t, "last_id")}
	case 6:
		p.header = []string{"Nats-Rollup", rapid.SampledFrom([]string{"sub", "all"}).Draw(t, "roll")}
	}
	return p
}

// TestModel runs random batches, purges and deletions on a stream and on the plain one: every answer and the whole
// state must agree.
func TestModel(t *testing.T) {
	store := newStore(t, "")
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		m := &plainStream{cfg: cfg, ids: map[string]uint64{}}
		w := &ours{store: store, router: bus.NewRouter()}
		if err := stream.Complete(&cfg, false, stream.Limits{}); err != nil {
			rt.Fatal(err)
		}
		spec := stream.LogSpec("$G", &cfg)
		spec.Shards = []storage.ShardID{0}
		log, err := store.CreateLog(spec)
		if err != nil {
			rt.Fatal(err)
		}
		s, err := stream.New(stream.Options{Account: "$G", Config: cfg, Log: log, Bus: w.router})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Stop()
		w.stream = s
		c := &client{answers: make(chan string, 1024)}
		if c.session, err = w.router.Open(bus.KindClient, bus.Identity{ID: 1}, c); err != nil {
			rt.Fatal(err)
		}
		defer c.session.Close()
		if _, err := c.session.Subscribe("1", "_INBOX.c.*", ""); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"batch": func(rt *rapid.T) { modelBatch(rt, m, c) },
			"purge": func(rt *rapid.T) { modelPurge(t, rt, m, w) },
			"delete": func(rt *rapid.T) {
				seq := uint64(rapid.IntRange(1, int(m.last)+2).Draw(rt, "seq"))
				was := m.remove(seq)
				if err := w.deleteMsg(t, seq, true); (err == nil) != was {
					rt.Fatalf("delete %d: %v", seq, err)
				}
			},
			"": func(rt *rapid.T) { modelState(t, rt, m, w) },
		})
	})
}

func modelBatch(rt *rapid.T, m *plainStream, c *client) {
	n := rapid.IntRange(1, 8).Draw(rt, "batch")
	var want []string
	for i := range n {
		p := drawPublication(rt, m)
		want = append(want, m.publish(&p))
		msg := bus.Msg{
			Subject: []byte(p.subject), Reply: fmt.Appendf(nil, "_INBOX.c.%d", i), Header: block(p.header...), Data: []byte(p.data),
		}
		c.session.Publish(&msg)
	}
	c.session.Flush()
	for i := range want {
		select {
		case a := <-c.answers:
			_, body, _ := strings.Cut(a, " ")
			if got := answerText(body); got != want[i] {
				rt.Fatalf("message %d of the batch: got %q, want %q", i, got, want[i])
			}
		case <-time.After(patience):
			rt.Fatalf("no answer to message %d", i)
		}
	}
}

func modelPurge(t *testing.T, rt *rapid.T, m *plainStream, w *ours) {
	t.Helper()
	req := server.JSApiStreamPurgeRequest{Subject: rapid.SampledFrom([]string{"", "s.a", "s.*"}).Draw(rt, "filter")}
	filter := req.Subject
	if filter == "" {
		filter = ">"
	}
	want := uint64(0)
	switch rapid.IntRange(0, 2).Draw(rt, "purge") {
	case 0:
		want = m.keep(filter, 0)
	case 1:
		req.Keep = uint64(rapid.IntRange(1, 3).Draw(rt, "keep"))
		want = m.keep(filter, int(req.Keep))
	case 2:
		req.Sequence = uint64(rapid.IntRange(1, int(m.last)+1).Draw(rt, "below"))
		for _, seq := range m.of(filter) {
			if seq < req.Sequence {
				m.remove(seq)
				want++
			}
		}
	}
	got, err := w.purge(t, req)
	if err != nil || got != want {
		rt.Fatalf("purge %+v: %d %v, want %d", req, got, err, want)
	}
}

func modelState(t *testing.T, rt *rapid.T, m *plainStream, w *ours) {
	t.Helper()
	st := w.state(t)
	counts := map[string]uint64{}
	for _, x := range m.live {
		counts[x.subject]++
	}
	first := m.last + 1
	if len(m.live) > 0 {
		first = m.live[0].seq
	}
	if m.last == 0 {
		first = st.FirstSeq
	}
	want := fmt.Sprint(len(m.live), m.bytes(), first, m.last, counts, int(m.last+1-first)-len(m.live))
	if got := fmt.Sprint(st.Msgs, st.Bytes, st.FirstSeq, st.LastSeq, st.Subjects, st.NumDeleted); m.last > 0 && got != want {
		rt.Fatalf("state %s, want %s", got, want)
	}
	var seqs []uint64
	for _, x := range m.live {
		seqs = append(seqs, x.seq)
	}
	if got := left(t, w); !slices.Equal(got, seqs) {
		rt.Fatalf("messages %v, want %v", got, seqs)
	}
}
