package jetstreamapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
)

// peer is a client of either server.
type peer interface {
	request(tb testing.TB, subject, header, body string) answer
	listen(subject string) <-chan answer
	send(tb testing.TB, subject, reply, data string)
}

func (p *party) send(_ testing.TB, subject, reply, data string) {
	m := bus.Msg{Subject: []byte(subject), Reply: []byte(reply), Data: []byte(data)}
	p.session.Publish(&m)
	p.session.Flush()
}

func (o *oracle) send(tb testing.TB, subject, reply, data string) {
	tb.Helper()
	if err := o.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(data)}); err != nil {
		tb.Fatal(err)
	}
}

func (o *oracle) listen(subject string) <-chan answer {
	out := make(chan answer, 4096)
	_, err := o.nc.Subscribe(subject, func(m *nats.Msg) {
		out <- answer{header: formatHeader(m.Header), data: string(m.Data), reply: m.Reply}
	})
	if err == nil {
		err = o.nc.Flush()
	}
	if err != nil {
		panic(err)
	}
	return out
}

// await takes the next message, or fails.
func await(tb testing.TB, what string, from <-chan answer) answer {
	tb.Helper()
	select {
	case a := <-from:
		return a
	case <-time.After(2 * answerTimeout):
		tb.Fatalf("%s: nothing came", what)
		return answer{}
	}
}

// backup is what a snapshot gave.
type backup struct {
	head   server.JSApiStreamSnapshotResponse
	data   string
	chunks int
	end    answer
}

// takeBackup takes a snapshot of stream S, acknowledging each chunk.
func takeBackup(tb testing.TB, p peer, more string) backup {
	tb.Helper()
	inbox := nats.NewInbox()
	chunks := p.listen(inbox)
	a := p.request(tb, "$JS.API.STREAM.SNAPSHOT.S", "", `{"deliver_subject":"`+inbox+`"`+more+`}`)
	var b backup
	if err := json.Unmarshal([]byte(a.data), &b.head); err != nil || b.head.Error != nil {
		tb.Fatalf("snapshot: %v, %v", a, err)
	}
	for {
		c := await(tb, "snapshot", chunks)
		if c.data == "" {
			b.end = c
			return b
		}
		b.data += c.data
		b.chunks++
		if c.reply != "" {
			p.send(tb, c.reply, "", "")
		}
	}
}

// restoreBackup sends a backup in chunks and returns the last answer.
func restoreBackup(tb testing.TB, p peer, stream, request, data string, size int) answer {
	tb.Helper()
	to := startRestore(tb, p, stream, request)
	inbox := nats.NewInbox()
	answers := p.listen(inbox)
	for len(data) > 0 {
		n := min(size, len(data))
		p.send(tb, to, inbox, data[:n])
		data = data[n:]
		if a := await(tb, "restore", answers); a.data != "" {
			return a
		}
	}
	p.send(tb, to, inbox, "")
	return await(tb, "restore", answers)
}

func startRestore(tb testing.TB, p peer, stream, request string) (deliver string) {
	tb.Helper()
	a := p.request(tb, "$JS.API.STREAM.RESTORE."+stream, "", request)
	var resp server.JSApiStreamRestoreResponse
	if err := json.Unmarshal([]byte(a.data), &resp); err != nil || resp.Error != nil {
		tb.Fatalf("restore: %v, %v", a, err)
	}
	return resp.DeliverSubject
}

func restoreRequest(b *backup) string {
	out, err := json.Marshal(map[string]any{"config": b.head.Config, "state": b.head.State})
	if err != nil {
		panic(err)
	}
	return string(out)
}

// ok fails the test if the answer is an error.
func ok(tb testing.TB, a answer) answer {
	tb.Helper()
	if a.nobody || strings.Contains(a.data, `"error"`) {
		tb.Fatalf("refused: %v", a)
	}
	return a
}

// furnish makes a stream with gaps, headers, a deleted tail and consumers in all states.
func furnish(tb testing.TB, p peer, storage string) {
	tb.Helper()
	create := func(name, cfg string) {
		ok(tb, p.request(tb, "$JS.API.CONSUMER.CREATE.S."+name, "", `{"stream_name":"S","config":{"name":"`+name+`",`+cfg+`}}`))
	}
	ok(tb, p.request(tb, "$JS.API.STREAM.CREATE.S", "", `{"name":"S","subjects":["s.>"],"storage":"`+storage+
		`","allow_direct":true,"metadata":{"k":"v"},"duplicate_window":60000000000}`))
	for i := range 30 {
		header := ""
		if i%3 == 0 {
			header = fmt.Sprintf("NATS/1.0\r\nNats-Msg-Id: id%d\r\nK: v\r\n\r\n", i)
		}
		ok(tb, p.request(tb, fmt.Sprintf("s.%d", i%4), header, fmt.Sprint("message ", i)))
	}
	create("D", `"durable_name":"D","ack_policy":"explicit","ack_wait":300000000000,"max_deliver":2`)
	create("F", `"durable_name":"F","ack_policy":"all","filter_subject":"s.1"`)
	create("N", `"durable_name":"N","ack_policy":"none","deliver_policy":"new"`)
	create("E", `"ack_policy":"explicit","inactive_threshold":300000000000`)
	create("P", `"durable_name":"P","ack_policy":"explicit","deliver_subject":"to.p","deliver_policy":"by_start_sequence","opt_start_seq":20`)
	got := pullFrom(tb, p, "D", 8)
	for i, body := range []string{"+ACK", "", "-NAK", "+TERM", "", "", "+ACK", ""} {
		if body != "" {
			p.request(tb, got[i].reply, "", body)
		}
	}
	again := pullFrom(tb, p, "D", 1) // the one that was refused, for the second time
	if !strings.Contains(again[0].reply, ".D.2.3.") {
		tb.Fatalf("redelivered as %s", again[0].reply)
	}
	got = pullFrom(tb, p, "F", 4)
	p.request(tb, got[1].reply, "", "+ACK")
	for _, seq := range []int{1, 2, 11, 12, 13, 29, 30} {
		ok(tb, p.request(tb, "$JS.API.STREAM.MSG.DELETE.S", "", fmt.Sprintf(`{"seq":%d}`, seq)))
	}
}

func pullFrom(tb testing.TB, p peer, consumer string, n int) []answer {
	tb.Helper()
	inbox := nats.NewInbox()
	from := p.listen(inbox)
	p.send(tb, "$JS.API.CONSUMER.MSG.NEXT.S."+consumer, inbox, fmt.Sprintf(`{"batch":%d,"expires":4000000000}`, n))
	out := make([]answer, n)
	for i := range out {
		if out[i] = await(tb, "pull", from); out[i].reply == "" {
			tb.Fatalf("pull: %v", out[i])
		}
	}
	return out
}

// sameStream compares what two servers hold.
func sameStream(t *testing.T, source, target peer, consumers ...string) {
	t.Helper()
	same := func(subject, body string) {
		t.Helper()
		if got, want := plain(target.request(t, subject, "", body)), plain(source.request(t, subject, "", body)); got != want {
			t.Errorf("%s %s\n got %s\nwant %s", subject, body, got, want)
		}
	}
	same("$JS.API.STREAM.INFO.S", `{"deleted_details":true,"subjects_filter":">"}`)
	for seq := 1; seq <= 31; seq++ {
		same("$JS.API.STREAM.MSG.GET.S", fmt.Sprintf(`{"seq":%d}`, seq))
	}
	same("$JS.API.CONSUMER.NAMES.S", "")
	for _, c := range consumers {
		same("$JS.API.CONSUMER.INFO.S."+c, "")
	}
}

// plain leaves out of an answer what is new on another server. Times of messages stay.
func plain(a answer) string {
	var v map[string]any
	if json.Unmarshal([]byte(a.data), &v) != nil {
		return a.data
	}
	for _, k := range []string{"created", "ts", "cluster", "push_bound"} {
		delete(v, k)
	}
	for _, k := range []string{"delivered", "ack_floor"} {
		if m, ok := v[k].(map[string]any); ok {
			delete(m, "last_active")
		}
	}
	if m, ok := v["state"].(map[string]any); ok {
		delete(m, "last_ts") // of a tail that was deleted: nats-server tells the time of the restore
	}
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

// goesOn checks that a restored stream is the old one to its clients.
func goesOn(t *testing.T, p peer) {
	t.Helper()
	if _, isOracle := p.(*oracle); !isOracle { // which forgets message ids in a restore
		a := p.request(t, "s.0", "NATS/1.0\r\nNats-Msg-Id: id27\r\n\r\n", "again")
		if !strings.Contains(a.data, `"duplicate": true`) {
			t.Errorf("a message id is forgotten: %v", a)
		}
	}
	if a := p.request(t, "s.0", "", "new"); !strings.Contains(strings.ReplaceAll(a.data, " ", ""), `"seq":31`) {
		t.Errorf("the next sequence: %v", a)
	}
	got := pullFrom(t, p, "D", 2)
	if !strings.Contains(got[0].reply, ".D.1.9.10.") || !strings.Contains(got[1].reply, ".D.1.10.11.") {
		t.Errorf("D goes on with %v, %v", got[0].reply, got[1].reply)
	}
	if got := pullFrom(t, p, "N", 1); !strings.Contains(got[0].reply, ".N.1.31.1.") {
		t.Errorf("N goes on with %v", got[0].reply)
	}
}

func TestBackupsBetweenServers(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"file", "memory"} {
		t.Run(storage, func(t *testing.T) {
			oracle1, oracle2 := startOracle(t, nil), startOracle(t, nil)
			gateway := func() peer {
				b := bus.NewRouter()
				startService(t, testOptions(b, t.TempDir()))
				return newParty(t, b, "$G")
			}
			ours1, ours2, ours3 := gateway(), gateway(), gateway()
			consumers := []string{"D", "F", "N", "P", "E"}
			for _, c := range []struct {
				name     string
				from, to peer
				size     int
			}{
				{"from nats-server", oracle1, ours1, 100},
				{"from here", ours2, ours3, 1 << 16},
				{"to nats-server", ours2, oracle2, 1000},
			} {
				t.Run(c.name, func(t *testing.T) {
					if c.to != peer(oracle2) {
						furnish(t, c.from, storage)
					}
					b := takeBackup(t, c.from, "")
					a := restoreBackup(t, c.to, "S", restoreRequest(&b), b.data, c.size)
					ok(t, a)
					if c.to == peer(oracle2) {
						consumers = consumers[:4] // nats-server moves a new consumer up to where the stream begins
					}
					sameStream(t, c.from, c.to, consumers...)
					goesOn(t, c.to)
				})
			}
		})
	}
}

// servers returns a nats-server and a gateway with a stream furnished alike.
func servers(t *testing.T, p patience) map[string]peer {
	t.Helper()
	b := bus.NewRouter()
	o := testOptions(b, t.TempDir())
	o.patience = p
	startService(t, o)
	return map[string]peer{"nats-server": startOracle(t, nil), "gateway": newParty(t, b, "$G")}
}

// fill makes a stream with incompressible messages of a kilobyte.
func fill(tb testing.TB, p peer, n int) {
	tb.Helper()
	ok(tb, p.request(tb, "$JS.API.STREAM.CREATE.S", "", `{"name":"S","subjects":["s"]}`))
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1024)
	for range n {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		ok(tb, p.request(tb, "s", "", string(b)))
	}
}

// The transport is nats-server's: sizes, replies, window and ends.
func TestSnapshotTransportAsNATSServer(t *testing.T) {
	t.Parallel()
	status := func(p peer, a answer) string {
		if _, isOracle := p.(*oracle); isOracle {
			return a.header
		}
		return clientHeader(a.header)
	}
	script := func(t *testing.T, p peer) string {
		t.Helper()
		var out strings.Builder
		fill(t, p, 20)
		for _, more := range []string{"", `,"chunk_size":1024`, `,"chunk_size":1,"window_size":1`, `,"chunk_size":5000,"no_consumers":true`} {
			b := takeBackup(t, p, more)
			want := max(1, (len(b.data)+1023)/1024)
			fmt.Fprintf(&out, "%s: %v chunks as expected, end %s\n", more, b.chunks == want || !strings.Contains(more, "1024"),
				status(p, b.end))
		}
		inbox := nats.NewInbox()
		chunks := p.listen(inbox)
		p.request(t, "$JS.API.STREAM.SNAPSHOT.S", "", `{"deliver_subject":"`+inbox+`","chunk_size":1024,"window_size":3000}`)
		for i := range 2 {
			c := await(t, "chunk", chunks)
			tokens := strings.Split(c.reply, ".")
			fmt.Fprintf(&out, "chunk %d: %d bytes, reply %s %s\n", i, len(c.data), strings.Join(tokens[:4], "."), tokens[5:])
			if i == 0 {
				p.send(t, c.reply, "", "")
			}
		}
		c := await(t, "chunk", chunks)
		fmt.Fprintf(&out, "chunk 3: %d bytes\n", len(c.data)) // for the one ack
		select {
		case c = <-chunks:
			fmt.Fprintf(&out, "sent beyond the window: %d bytes", len(c.data))
		case <-time.After(50 * time.Millisecond):
		}
		end := <-chunks // nobody acknowledges any more
		fmt.Fprintf(&out, "end %s %q\n", status(p, end), end.data)
		return out.String()
	}
	both := servers(t, patience{})
	out := map[string]string{}
	var mu sync.Mutex
	t.Run("both", func(t *testing.T) {
		for name, p := range both {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each waits for its time-out
				got := script(t, p)
				mu.Lock()
				out[name] = got
				mu.Unlock()
			})
		}
	})
	if got, want := out["gateway"], out["nats-server"]; got != want {
		t.Errorf("got\n%s\nnats-server\n%s", got, want)
	}
}

// A client that subscribes after it was answered, to an inbox it has had under a wildcard before, gets every chunk.
func TestSnapshotAwaitsTheReceiver(t *testing.T) {
	t.Parallel()
	p := servers(t, patience{})["gateway"]
	fill(t, p, 3)
	inbox := nats.NewInbox()
	p.listen("_INBOX.>")
	p.request(t, "$JS.API.STREAM.SNAPSHOT.S", "", `{"deliver_subject":"`+inbox+`"}`)
	time.Sleep(50 * time.Millisecond)
	chunks := p.listen(inbox)
	if c := await(t, "chunk", chunks); len(c.data) < 3000 {
		t.Errorf("the first chunk has %d bytes", len(c.data))
	}
	if c := await(t, "end", chunks); c.data != "" {
		t.Errorf("the end is %v", c)
	}
}

func TestSnapshotEndsWithoutReceiver(t *testing.T) {
	t.Parallel()
	p := servers(t, patience{interest: 20 * time.Millisecond, ack: 5 * time.Second, chunk: time.Second})["gateway"]
	fill(t, p, 20)
	done := p.listen("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
	p.request(t, "$JS.API.STREAM.SNAPSHOT.S", "", `{"deliver_subject":"nobody"}`)
	if a := await(t, "advisory", done); !strings.Contains(a.data, `"error":"no interest"`) {
		t.Errorf("advisory %v", a)
	}
}

func TestTransferAdvisories(t *testing.T) {
	t.Parallel()
	script := func(p peer) string {
		var out []string
		events := p.listen("$JS.EVENT.ADVISORY.STREAM.>")
		fill(t, p, 2)
		b := takeBackup(t, p, "")
		p.request(t, "$JS.API.STREAM.DELETE.S", "", "")
		ok(t, restoreBackup(t, p, "S", restoreRequest(&b), b.data, 1000))
		for range 7 {
			var v map[string]any
			if err := json.Unmarshal([]byte(await(t, "advisory", events).data), &v); err != nil {
				t.Fatal(err)
			}
			for _, k := range []string{"id", "timestamp", "start", "end", "client"} {
				delete(v, k)
			}
			if n, ok := v["bytes"].(float64); ok && int(n) == len(b.data) {
				v["bytes"] = "all"
			}
			if m, ok := v["state"].(map[string]any); ok {
				delete(m, "first_ts")
				delete(m, "last_ts")
			}
			j, _ := json.Marshal(v)
			out = append(out, string(j))
		}
		slices.Sort(out[5:]) // the last two come in any order
		return strings.Join(out, "\n")
	}
	both := servers(t, patience{})
	got, want := script(both["gateway"]), script(both["nats-server"])
	if got != want {
		t.Errorf("got\n%s\nnats-server\n%s", got, want)
	}
}

// archiveOf makes a backup of entries: name, sequence, body.
func archiveOf(entries ...[3]string) string {
	var raw bytes.Buffer
	enc := s2.NewWriter(&raw)
	w := archive.NewWriter(enc)
	for _, e := range entries {
		if e[0] == "END" {
			_ = w.End()
			break
		}
		seq, _ := strconv.ParseUint(e[1], 10, 64)
		_ = w.Add([]byte(e[0]), 1, seq, nil, []byte(e[2]))
	}
	_ = enc.Close()
	return raw.String()
}

// Bad backups are refused as nats-server refuses them, and leave nothing.
func TestBadBackups(t *testing.T) {
	t.Parallel()
	const config = `{"config":{"name":"R","subjects":["r"],"max_msg_size":100},"state":{}}`
	state := func(s string) [3]string { return [3]string{"state.json", "", s} }
	one := state(`{"first_seq":1,"last_seq":2,"messages":2}`)
	end := [3]string{"END"}
	both := servers(t, patience{})
	gateway := both["gateway"]
	for name, b := range map[string]struct{ data, ours string }{
		"no state":          {archiveOf([3]string{"r", "1", "x"}, end), ""},
		"bad state":         {archiveOf(state(`{"first_seq":0,"last_seq":2,"messages":2}`), end), ""},
		"bad count":         {archiveOf(state(`{"first_seq":1,"last_seq":2,"messages":4}`), end), ""},
		"negative":          {archiveOf(state(`{"consumer_count":-1}`), end), ""},
		"no consumer":       {archiveOf(state(`{"consumer_count":1}`), [3]string{"r", "1", "x"}, end), ""},
		"empty consumer":    {archiveOf(state(`{"consumer_count":1}`), [3]string{"consumers/C", "", "{}"}, end), ""},
		"no consumer state": {archiveOf(state(`{"consumer_count":1}`), [3]string{"consumers/C", "", `{"config":{"ack_policy":"none"}}`}, end), ""},
		"out of order":      {archiveOf(one, [3]string{"r", "2", "x"}, [3]string{"r", "1", "x"}, end), ""},
		"no sequence":       {archiveOf(one, [3]string{"r", "", "x"}, end), ""},
		"too large":         {archiveOf(one, [3]string{"r", "1", strings.Repeat("x", 101)}, end), ""},
		"too many bytes":    {archiveOf(state(`{"bytes":9223372036854775808}`), end), ""},
		"truncated":         {archiveOf(one, [3]string{"r", "1", "x"}), "restore failed: archive was truncated"},
		"not s2":            {"nonsense nonsense nonsense", "restore failed: s2: corrupt input"},
		"no archive":        {s2Of("nonsense nonsense"), "restore failed: not an archive"},
		"tar":               {s2Of("meta.inf\x00\x00\x00"), "restore failed: this is a snapshot in the tar form"},
		"bad subject":       {archiveOf(one, [3]string{"r..x", "1", "x"}, end), "has no valid subject"},
		"consumer twice": {archiveOf(state(`{"consumer_count":2}`), [3]string{"consumers/C", "", `{"config":{"ack_policy":"none"},"state":{}}`},
			[3]string{"consumers/C", "", `{"config":{"ack_policy":"none"},"state":{}}`}, end), "consumer name already in use"},
		"bad consumer": {archiveOf(state(`{"consumer_count":1}`), [3]string{
			"consumers/C", "",
			`{"config":{"name":"C","ack_policy":"none"},"state":{"delivered":{"consumer_seq":1},"ack_floor":{"consumer_seq":2}}}`,
		}, end), `restore failed: failed to set consumer \"C\" state: `},
	} {
		got := restoreBackup(t, gateway, "R", config, b.data, 10_000)
		if b.ours == "" {
			oracle := both["nats-server"]
			want := restoreBackup(t, oracle, "R", config, b.data, 10_000)
			oracle.request(t, "$JS.API.STREAM.DELETE.R", "", "")
			if normal(got) != normal(want) {
				t.Errorf("%s:\n got %v\nwant %v", name, got, want)
			}
		} else if !strings.Contains(got.data, b.ours) || !strings.Contains(got.data, "10062") && name != "consumer twice" {
			t.Errorf("%s: got %v", name, got)
		}
		if a := gateway.request(t, "$JS.API.STREAM.INFO.R", "", ""); !strings.Contains(a.data, "10059") {
			t.Errorf("%s: something is left: %v", name, a)
		}
	}
}

func s2Of(s string) string {
	var raw bytes.Buffer
	enc := s2.NewWriter(&raw)
	_, _ = enc.Write([]byte(s))
	_ = enc.Close()
	return raw.String()
}
