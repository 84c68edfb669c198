package jetstreamapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

// logsLeft counts the logs of a store beside the catalog.
func logsLeft(st *storage.Store) (n int) {
	st.EachLog(func(id storage.LogID, _ string, _ bool) {
		if id != st.Catalog().ID() {
			n++
		}
	})
	return n
}

// half starts a restore of a backup with a consumer and sends the first part of it.
func half(t *testing.T, p *party) (to, rest string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 500_000)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	entries := [][3]string{
		{"state.json", "", `{"first_seq":1,"last_seq":3,"messages":3,"consumer_count":1}`},
		{"consumers/C", "", `{"config":{"durable_name":"C","ack_policy":"explicit"},"state":{}}`},
	}
	for i := range 3 {
		entries = append(entries, [3]string{"r", fmt.Sprint(i + 1), string(random)})
	}
	data := archiveOf(append(entries, [3]string{"END"})...)
	to = startRestore(t, p, "R", `{"config":{"subjects":["r"]},"state":{}}`)
	inbox := nats.NewInbox()
	answers := p.listen(inbox)
	for n := range len(data) - 100 {
		if n%1000 == 0 {
			p.send(t, to, inbox, data[n:min(n+1000, len(data)-100)])
			if a := await(t, "restore", answers); a.data != "" {
				t.Fatal(a)
			}
		}
	}
	return to, data[len(data)-100:]
}

func TestAbandonedRestoreLeavesNothing(t *testing.T) {
	t.Parallel()
	b := bus.NewRouter()
	o := testOptions(b, t.TempDir())
	o.patience = patience{interest: time.Second, ack: time.Second, chunk: 300 * time.Millisecond}
	s := startService(t, o)
	p := newParty(t, b, "$G")
	done := p.listen("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.R")
	to, _ := half(t, p)
	if n := logsLeft(s.Store()); n != 2 {
		t.Fatalf("%d logs while it is under way", n)
	}
	if a := p.request(t, "$JS.API.STREAM.INFO.R", "", ""); !strings.Contains(a.data, "10059") {
		t.Errorf("the stream shows before it is there: %v", a)
	}
	await(t, "the time-out", done)
	if n := logsLeft(s.Store()); n != 0 {
		t.Errorf("%d logs are left", n)
	}
	deadline := time.Now().Add(answerTimeout)
	for b.HasInterest("$G", to) {
		if time.Now().After(deadline) {
			t.Fatal("chunks are still taken")
		}
		time.Sleep(time.Millisecond)
	}
	if n := s.account("$G").used.store.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// A stop in the middle of a restore leaves nothing; one after its answer leaves all of it. (The end-to-end tests kill.)
func TestRestoreIsWholeAfterARestart(t *testing.T) {
	t.Parallel()
	b, dir := bus.NewRouter(), t.TempDir()
	s := New(testOptions(b, dir))
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := newParty(t, b, "$G")
	half(t, p)
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = startService(t, testOptions(b, dir))
	if n := logsLeft(s.Store()); n != 0 {
		t.Errorf("%d logs are left", n)
	}
	to, rest := half(t, p)
	p.send(t, to, "rest", rest)
	inbox := nats.NewInbox()
	end := p.listen(inbox)
	p.send(t, to, inbox, "")
	ok(t, await(t, "end", end))
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	startService(t, testOptions(b, dir))
	var i server.StreamInfo
	p.must(t, &i, "$JS.API.STREAM.INFO.R", "")
	if i.State.Msgs != 3 || i.State.Consumers != 1 || i.State.LastSeq != 3 {
		t.Errorf("after a restart %+v", i.State)
	}
}

func TestNameTakenDuringRestore(t *testing.T) {
	t.Parallel()
	b := bus.NewRouter()
	s := startService(t, testOptions(b, t.TempDir()))
	p := newParty(t, b, "$G")
	to, rest := half(t, p)
	p.must(t, nil, "$JS.API.STREAM.CREATE.R", `{"name":"R","subjects":["other"]}`)
	inbox := nats.NewInbox()
	answers := p.listen(inbox)
	p.send(t, to, inbox, rest)
	p.send(t, to, inbox, "")
	await(t, "chunk", answers)
	if a := await(t, "end", answers); !strings.Contains(a.data, "10130") {
		t.Errorf("answered %v", a)
	}
	if n := logsLeft(s.Store()); n != 1 {
		t.Errorf("%d logs, want that of the new stream", n)
	}
	if a := p.request(t, "$JS.API.STREAM.RESTORE.R", "", `{"config":{},"state":{}}`); !strings.Contains(a.data, "10130") {
		t.Errorf("a restore over it: %v", a)
	}
}

// A client that sends without waiting is slowed down, and one that ignores that is told so.
func TestRestoreHasBounds(t *testing.T) {
	t.Parallel()
	c := &chunkReceiver{stream: "A > S", wake: make(chan struct{}, 1), ctx: context.Background(), timeout: time.Second}
	deliver := func(n int) <-chan struct{} {
		return c.Deliver([]bus.Delivery{{Msg: bus.Msg{Reply: []byte("r"), Data: make([]byte, n)}}})
	}
	if deliver(chunksPause/2) != nil {
		t.Error("paused at once")
	}
	stall := deliver(chunksPause)
	if stall == nil {
		t.Fatal("not paused")
	}
	for range 2 {
		if _, err := c.take(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-stall:
	default:
		t.Error("still paused though all was taken")
	}
	for range 3 {
		deliver(chunksMost / 2)
	}
	if _, err := c.take(); err == nil || !strings.Contains(err.Error(), "faster") {
		t.Errorf("beyond the bound: %v", err)
	}
	if c.queued > chunksMost+1000 {
		t.Errorf("%d bytes are queued", c.queued)
	}
}

func TestTransferLimit(t *testing.T) {
	t.Parallel()
	b := bus.NewRouter()
	startService(t, testOptions(b, ""))
	p := newParty(t, b, "$G")
	for i := range maxTransfers {
		name := fmt.Sprint("S", i)
		startRestore(t, p, name, `{"config":{"storage":"memory"},"state":{}}`)
	}
	if a := p.request(t, "$JS.API.STREAM.RESTORE.X", "", `{"config":{"storage":"memory"},"state":{}}`); !strings.Contains(a.data, "10062") ||
		!strings.Contains(a.data, "under way") {
		t.Errorf("one more: %v", a)
	}
	p.must(t, nil, "$JS.API.STREAM.CREATE.S", `{"name":"S","storage":"memory"}`)
	if a := p.request(t, "$JS.API.STREAM.SNAPSHOT.S", "", `{"deliver_subject":"x"}`); !strings.Contains(a.data, "10064") {
		t.Errorf("a snapshot beside them: %v", a)
	}
}

func TestRestoreKeepsToMaxPayload(t *testing.T) {
	t.Parallel()
	b := bus.NewRouter()
	s := startService(t, testOptions(b, ""))
	p := newParty(t, b, "$G")
	data := archiveOf([3]string{"state.json", "", `{"first_seq":1,"last_seq":1,"messages":1}`},
		[3]string{"r", "1", strings.Repeat("x", 2000)}, [3]string{"END"})
	const config = `{"config":{"subjects":["r"],"storage":"memory"},"state":{}}`
	s.SetMaxPayload(1999)
	if a := restoreBackup(t, p, "R", config, data, 1000); !strings.Contains(a.data, "exceeds maximum payload size") {
		t.Errorf("beyond it: %v", a)
	}
	s.SetMaxPayload(0) // the default
	ok(t, restoreBackup(t, p, "R", config, data, 1000))
}

func TestRestoreBeyondTheLimits(t *testing.T) {
	t.Parallel()
	b := bus.NewRouter()
	o := testOptions(b, "")
	limits := NoLimits()
	limits.MaxStore = 1000
	o.Accounts = map[string]server.JetStreamAccountLimits{"$G": limits}
	s := startService(t, o)
	p := newParty(t, b, "$G")
	entry := [3]string{"r", "1", strings.Repeat("x", 2000)}
	for _, state := range []string{`{"bytes":5000}`, `{"first_seq":1,"last_seq":1,"messages":1}`} {
		a := restoreBackup(t, p, "R", `{"config":{"subjects":["r"]},"state":{}}`,
			archiveOf([3]string{"state.json", "", state}, entry, [3]string{"END"}), 1000)
		if !strings.Contains(a.data, "10047") {
			t.Errorf("%s: %v", state, a)
		}
	}
	if n := s.account("$G").used.store.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// Retention holds after a restore: what a consumer has done is gone, what it has not is there.
func TestRestoreOfAWorkQueue(t *testing.T) {
	t.Parallel()
	both := servers(t, patience{})
	for _, retention := range []string{"workqueue", "interest"} {
		p := both["nats-server"]
		ok(t, p.request(t, "$JS.API.STREAM.CREATE.S", "", `{"name":"S","subjects":["s"],"retention":"`+retention+`"}`))
		ok(t, p.request(t, "$JS.API.CONSUMER.CREATE.S.C", "", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`))
		for range 6 {
			ok(t, p.request(t, "s", "", "x"))
		}
		got := pullFrom(t, p, "C", 4)
		p.request(t, got[0].reply, "", "+ACK")
		p.request(t, got[2].reply, "", "+ACK")
		b := takeBackup(t, p, "")
		ok(t, restoreBackup(t, both["gateway"], "S", restoreRequest(&b), b.data, 1000))
		sameStream(t, p, both["gateway"], "C")
		g := both["gateway"]
		for _, c := range pullFrom(t, g, "C", 2) {
			g.request(t, c.reply, "", "+ACK")
		}
		if a := g.request(t, "$JS.API.STREAM.INFO.S", "", ""); !strings.Contains(a.data, `"messages":2,`) {
			t.Errorf("%s: %v", retention, a)
		}
		g.request(t, "$JS.API.STREAM.DELETE.S", "", "")
		p.request(t, "$JS.API.STREAM.DELETE.S", "", "")
	}
}

// Messages whose own TTL has passed stay away; the sequence goes on all the same.
func TestRestoreLeavesOutWhatExpired(t *testing.T) {
	t.Parallel()
	p := servers(t, patience{})["gateway"]
	ttl := "NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
	ok(t, p.request(t, "$JS.API.STREAM.CREATE.S", "", `{"name":"S","subjects":["s"],"allow_msg_ttl":true}`))
	ok(t, p.request(t, "s", "", "stays"))
	ok(t, p.request(t, "s", ttl, "goes"))
	b := takeBackup(t, p, "")
	p.request(t, "$JS.API.STREAM.DELETE.S", "", "")
	time.Sleep(1100 * time.Millisecond)
	a := ok(t, restoreBackup(t, p, "S", restoreRequest(&b), b.data, 1000))
	if !strings.Contains(a.data, `"messages":1,`) || !strings.Contains(a.data, `"last_seq":2,`) {
		t.Errorf("restored %v", a)
	}
}
