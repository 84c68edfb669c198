package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// table is a plain answer to what admission asks.
type table struct {
	ids      map[string]uint64
	keys     map[string]storage.KeyState
	interest bool
	messages uint64
	bytes    uint64
	sizes    map[uint64]uint64
	known    bool
	counts   map[string]*count
}

func (t *table) duplicateOf(id []byte) uint64        { return t.ids[string(id)] }
func (t *table) key(subject []byte) storage.KeyState { return t.keys[string(subject)] }
func (t *table) wanted([]byte) bool                  { return t.interest }
func (t *table) totals() (messages, size uint64)     { return t.messages, t.bytes }
func (t *table) sizeAt(seq uint64) uint64            { return t.sizes[seq] }
func (t *table) counter(subject []byte) (*count, *server.ApiError) {
	return t.counts[string(subject)], nil
}
func (t *table) zone(name []byte) (*time.Location, error) { return time.LoadLocation(string(name)) }
func (t *table) lastIsSchedule([]byte) bool               { return false }
func (t *table) lastMatching(filter []byte) (last uint64, known bool) {
	for key, ks := range t.keys {
		if subjects.Match(string(filter), key) {
			last = max(last, ks.Last)
		}
	}
	return last, t.known
}

// headers writes a block from alternating names and values.
func headers(pairs ...string) []byte {
	if len(pairs) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("NATS/1.0\r\n")
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(pairs[i] + ": " + pairs[i+1] + "\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

func settingsOf(t *testing.T, cfg server.StreamConfig) *settings {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "S"
	}
	sealed := cfg.Sealed
	if err := Complete(&cfg, false, Limits{}); err != nil {
		t.Fatal(err)
	}
	cfg.Sealed = sealed
	set, err := newSettings(&cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// decide runs both halves of admission.
func decide(set *settings, at *position, f facts, in *incoming) verdict {
	in.named.Parse(in.header)
	v := set.admit(at, f, in)
	if v.kind == verdictStore {
		if _, w := set.fit(f, in); !w.accepted() {
			return w
		}
	}
	return v
}

// TestAdmitOrder takes a message with every fault there is, and cures them one by one: each time, the error is that of
// the first fault left.
func TestAdmitOrder(t *testing.T) {
	set := settingsOf(t, server.StreamConfig{
		Name: "S", Subjects: []string{"a.>"}, Sealed: true, MaxMsgSize: 700, Discard: server.DiscardNew, MaxMsgs: 2,
		MaxMsgsPer: 1, DiscardNewPer: true,
	})
	at := position{lastSeq: 9, lastMsgID: []byte("last")}
	f := &table{
		ids: map[string]uint64{"dup": 4}, messages: 2,
		keys: map[string]storage.KeyState{"a.b": {First: 7, Last: 7, Count: 1}},
	}
	in := incoming{subject: []byte("a.b"), data: []byte(strings.Repeat("x", 701))}
	h := []string{
		"Nats-Incr", "one", "Nats-Expected-Stream", "T", "Nats-TTL", "5",
		"Nats-Expected-Last-Subject-Sequence", "6", "Nats-Expected-Last-Sequence", "8", "Nats-Schedule", "@every 1s",
		"Nats-Scheduler", "x", "Nats-Stream-Source", "O 1", "Nats-Msg-Id", "dup", "Nats-Expected-Last-Msg-Id", "other",
		"Nats-Rollup", "sub",
	}
	cut := func(name string) func() {
		return func() {
			for i := 0; i < len(h); i += 2 {
				if h[i] == name {
					h = append(h[:i:i], h[i+2:]...)
					return
				}
			}
			t.Fatalf("no header %s", name)
		}
	}
	set1 := func(name, value string) func() {
		return func() {
			for i := 0; i < len(h); i += 2 {
				if h[i] == name {
					h[i+1] = value
				}
			}
		}
	}
	for _, step := range []struct {
		code   uint16
		text   string
		atHead bool
		cure   func()
	}{
		{10109, "invalid operation on sealed stream", false, func() { set.cfg.Sealed = false }},
		{10054, "message size exceeds maximum allowed", false, func() { in.data = in.data[:10] }},
		{10171, "message counter increment is invalid", false, set1("Nats-Incr", "+1")},
		{10168, "message counters is disabled", false, cut("Nats-Incr")},
		{10060, "expected stream does not match", false, cut("Nats-Expected-Stream")},
		{10166, "per-message TTL is disabled", false, cut("Nats-TTL")},
		{10071, "wrong last sequence: 7", true, set1("Nats-Expected-Last-Subject-Sequence", "7")},
		{10071, "wrong last sequence: 9", true, set1("Nats-Expected-Last-Sequence", "9")},
		{10188, "message schedules is disabled", false, cut("Nats-Schedule")},
		{10212, "message schedules invalid scheduler", false, cut("Nats-Scheduler")},
		{10227, "message stream source header is not allowed", false, cut("Nats-Stream-Source")},
		{0, "", false, set1("Nats-Msg-Id", "new")}, // a duplicate
		{10070, "wrong last msg ID: last", true, set1("Nats-Expected-Last-Msg-Id", "last")},
		{10111, "rollup not permitted", false, func() { set.cfg.AllowRollup = true }},
	} {
		in.header = headers(h...)
		v := decide(set, &at, f, &in)
		if step.code == 0 {
			if v.kind != verdictDuplicate || v.seq != 4 {
				t.Fatalf("got %+v, want the duplicate of 4", v)
			}
		} else if v.kind != verdictRefuse || v.err.ErrCode != step.code || v.err.Description != step.text || v.atHead != step.atHead {
			t.Fatalf("got %+v %v, want %d %q", v, v.err, step.code, step.text)
		}
		step.cure()
	}
	in.header = headers(h...)
	if v := decide(set, &at, f, &in); v.kind != verdictStore || v.rollup != rollupSubject {
		t.Fatalf("got %+v %v, want it stored", v, v.err)
	}
	cut("Nats-Rollup")() // which made room for itself
	in.header = headers(h...)
	v := decide(set, &at, f, &in)
	if v.kind != verdictRefuse || v.err.Description != "maximum messages per subject exceeded" || !v.atHead {
		t.Fatalf("got %+v %v, want it refused", v, v.err)
	}
}

func TestAdmitFull(t *testing.T) {
	key := map[string]storage.KeyState{"S": {First: 3, Last: 5, Count: 2}}
	for name, c := range map[string]struct {
		cfg  server.StreamConfig
		f    table
		want string
	}{
		"room":                 {server.StreamConfig{MaxMsgs: 3, MaxBytes: 1000}, table{messages: 2, bytes: 10}, ""},
		"messages":             {server.StreamConfig{MaxMsgs: 3}, table{messages: 3}, "maximum messages exceeded"},
		"bytes":                {server.StreamConfig{MaxBytes: 100}, table{bytes: 69}, "maximum bytes exceeded"},
		"bytes, just":          {server.StreamConfig{MaxBytes: 100}, table{bytes: 66}, ""},
		"replaces a message":   {server.StreamConfig{MaxMsgs: 3, MaxMsgsPer: 2}, table{messages: 3, keys: key}, ""},
		"replaces as large":    {server.StreamConfig{MaxBytes: 99, MaxMsgsPer: 2}, table{bytes: 99, keys: key, sizes: map[uint64]uint64{3: 34}}, ""},
		"replaces a small one": {server.StreamConfig{MaxBytes: 99, MaxMsgsPer: 2}, table{bytes: 99, keys: key, sizes: map[uint64]uint64{3: 33}}, "maximum bytes exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Discard = server.DiscardNew
			set := settingsOf(t, c.cfg)
			v := decide(set, &position{}, &c.f, &incoming{subject: []byte("S"), data: []byte("abc")}) // 34 bytes
			if c.want == "" && v.kind != verdictStore {
				t.Fatalf("got %+v %v, want it stored", v, v.err)
			}
			if c.want != "" && (v.kind != verdictRefuse || v.err.Description != c.want || v.err.ErrCode != 10077) {
				t.Fatalf("got %+v %v, want %q", v, v.err, c.want)
			}
		})
	}
}

func TestAdmitInterest(t *testing.T) {
	set := settingsOf(t, server.StreamConfig{Retention: server.InterestPolicy})
	in := incoming{subject: []byte("S")}
	if v := decide(set, &position{}, &table{}, &in); v.kind != verdictSkip {
		t.Errorf("without interest: got %+v", v)
	}
	if v := decide(set, &position{}, &table{interest: true}, &in); v.kind != verdictStore {
		t.Errorf("with interest: got %+v", v)
	}
}

func TestExpectedSubjectSequence(t *testing.T) {
	set := settingsOf(t, server.StreamConfig{Subjects: []string{"a.>"}})
	f := &table{known: true, keys: map[string]storage.KeyState{"a.b": {Last: 3, Count: 1}, "a.c": {Last: 5, Count: 1}}}
	for _, c := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"Nats-Expected-Last-Subject-Sequence", "3"}, ""},
		{[]string{"Nats-Expected-Last-Subject-Sequence", "0"}, "wrong last sequence: 3"},
		{[]string{"Nats-Expected-Last-Subject-Sequence", "x"}, "wrong last sequence: 3"},
		{[]string{"Nats-Expected-Last-Subject-Sequence", "5", "Nats-Expected-Last-Subject-Sequence-Subject", "a.c"}, ""},
		{[]string{"Nats-Expected-Last-Subject-Sequence", "5", "Nats-Expected-Last-Subject-Sequence-Subject", "a.*"}, ""},
		{[]string{"Nats-Expected-Last-Subject-Sequence", "0", "Nats-Expected-Last-Subject-Sequence-Subject", "z"}, ""},
		{[]string{"Nats-Expected-Last-Subject-Sequence-Subject", "a.*"}, "missing sequence for expected last sequence per subject"},
		{[]string{"Nats-Expected-Last-Sequence", "99999999999999999999"}, "wrong last sequence: 9"},
	} {
		v := decide(set, &position{lastSeq: 9}, f, &incoming{subject: []byte("a.b"), header: headers(c.pairs...)})
		if c.want == "" && v.kind != verdictStore || c.want != "" && (v.err == nil || v.err.Description != c.want) {
			t.Errorf("%v: got %+v %v, want %q", c.pairs, v, v.err, c.want)
		}
	}
}

func TestTTL(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "0": -2, "5": 5, "5s": 5, "1m30s": 90, "1500ms": 1, "never": -1, "NEVER": -1, "999ms": -2, "-5": -2, "5x": -2, "-1s": -2,
	} {
		got, err := parseTTL([]byte(in))
		if err != nil {
			got = -2
		}
		if got != want {
			t.Errorf("parseTTL(%q) = %d, want %d", in, got, want)
		}
	}
}

func FuzzAdmit(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nNats-TTL: 5\r\n\r\n"), "a.b")
	f.Add([]byte("NATS/1.0\r\nNats-Rollup: SUB\r\nNats-Expected-Last-Subject-Sequence-Subject: a.*\r\n\r\n"), "a")
	cfg := server.StreamConfig{Name: "S", Subjects: []string{">"}, NoAck: true, AllowMsgTTL: true, AllowRollup: true}
	if err := Complete(&cfg, false, Limits{}); err != nil {
		f.Fatal(err)
	}
	set, err := newSettings(&cfg, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header []byte, subject string) {
		in := incoming{subject: []byte(subject), header: header}
		v := decide(set, &position{}, &table{}, &in)
		if v.accepted() || (v.kind == verdictRefuse) != (v.err != nil) {
			t.Fatalf("no verdict: %+v", v)
		}
	})
}
