package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestBackup takes backups with the real nats CLI and restores them: from a nats-server into the gateway, from there
// into another nats-server, and from the gateway into itself. At each stop messages, configuration and consumers are
// those of the first server.
func TestBackup(t *testing.T) {
	cli, err := filepath.Abs(natsCLI)
	noErr(t, err)
	if _, err := os.Stat(cli); err != nil {
		t.Fatalf("the nats CLI is not built (make tools): %v", err)
	}
	home := t.TempDir()
	run := func(url, line string) {
		t.Helper()
		if out, err := runCLI(cli, home, url, line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	first, last := startOracle(t, nil), startOracle(t, nil)
	gateway := startGateway(t, t.TempDir())
	furnish(t, first.ClientURL())
	want := contents(t, first.ClientURL())

	run(first.ClientURL(), "stream backup S one --no-progress")
	run(gateway.URL, "stream restore one --no-progress")
	sameLines(t, "restored into the gateway", contents(t, gateway.URL), want)

	run(gateway.URL, "stream backup S two --no-progress")
	run(last.ClientURL(), "stream restore two --no-progress")
	sameLines(t, "and into a nats-server again", contents(t, last.ClientURL()), want)

	run(gateway.URL, "stream rm S -f")
	run(gateway.URL, "stream restore two --no-progress")
	sameLines(t, "from the gateway into itself", contents(t, gateway.URL), want)
	if out, err := runCLI(cli, home, gateway.URL, "stream restore two --no-progress"); err == nil {
		t.Errorf("restored over a stream that is there: %s", out)
	}
	goesOn(t, gateway.URL)
}

// furnish makes a stream of a few megabytes with gaps, whose last message is deleted, and two consumers at work.
func furnish(t *testing.T, url string) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Metadata: map[string]string{"k": "v"}, Duplicates: time.Hour,
	})
	noErr(t, err)
	for i := range 300 {
		m := nats.NewMsg(fmt.Sprintf("s.%d", i%7))
		m.Header.Set("Nats-Msg-Id", fmt.Sprint("id", i))
		m.Data = make([]byte, 10_000)
		for at := range m.Data {
			m.Data[at] = byte(at * at * (i + 1) >> 3) // hard to compress
		}
		_, err := js.PublishMsg(ctx, m)
		noErr(t, err)
	}
	for _, seq := range []uint64{1, 2, 50, 51, 52, 300} {
		noErr(t, s.DeleteMsg(ctx, seq))
	}
	explicit, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, FilterSubject: "s.3",
	})
	noErr(t, err)
	batch, err := explicit.Fetch(6)
	noErr(t, err)
	for m := range batch.Messages() {
		if md, err := m.Metadata(); err != nil || md.Sequence.Consumer%2 == 0 {
			noErr(t, m.DoubleAck(ctx))
		}
	}
	_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "N", DeliverPolicy: jetstream.DeliverNewPolicy})
	noErr(t, err)
}

// contents is what a server holds of the stream, but for when it was made there.
func contents(t *testing.T, url string) []string {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	s, err := js.Stream(ctx, "S")
	noErr(t, err)
	var tr transcript
	i, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	noErr(t, err)
	tr.Add("%d messages of %d bytes from %d to %d, without %v, %d consumers; first at %v",
		i.State.Msgs, i.State.Bytes, i.State.FirstSeq, i.State.LastSeq, i.State.Deleted, i.State.Consumers, i.State.FirstTime)
	tr.Add("%+v", i.Config.Metadata)
	tr.JSON("config", i.Config)
	for seq := uint64(1); seq <= i.State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			tr.Add("%d: %v", seq, err)
			continue
		}
		tr.Add("%d: %s at %d, %v, %x", seq, m.Subject, m.Time.UnixNano(), m.Header, m.Data)
	}
	for _, name := range []string{"C", "N"} {
		c, err := s.Consumer(ctx, name)
		noErr(t, err)
		i := c.CachedInfo()
		tr.Add("%s: delivered %d/%d, floor %d/%d, %d outstanding, %d again, %d pending", name,
			i.Delivered.Consumer, i.Delivered.Stream, i.AckFloor.Consumer, i.AckFloor.Stream,
			i.NumAckPending, i.NumRedelivered, i.NumPending)
		tr.JSON("config of "+name, i.Config)
	}
	return tr.lines
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s, line %d differs:\n got %.300q\nwant %.300q", what, i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}

// goesOn checks that a restored stream takes and gives messages as the old one would.
func goesOn(t *testing.T, url string) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	ack, err := js.Publish(ctx, "s.3", nil, jetstream.WithMsgID("id200"))
	noErr(t, err)
	if !ack.Duplicate || ack.Sequence != 201 {
		t.Errorf("a message id is forgotten: %+v", ack)
	}
	ack, err = js.Publish(ctx, "s.3", nil)
	noErr(t, err)
	if ack.Sequence != 301 {
		t.Errorf("the next sequence is %d", ack.Sequence)
	}
	c, err := js.Consumer(ctx, "S", "C")
	noErr(t, err)
	m, err := c.Next()
	noErr(t, err)
	if md, err := m.Metadata(); err != nil || md.Sequence.Consumer != 7 || md.NumDelivered != 1 {
		t.Errorf("the consumer goes on with %+v, %v", md, err)
	}
}

// TestRestoreKilled kills the gateway in the middle of a restore, after which nothing of the stream is there, and right
// after the answer to one, after which all of it is.
func TestRestoreKilled(t *testing.T) {
	first := startOracle(t, nil)
	furnish(t, first.ClientURL())
	want := contents(t, first.ClientURL())
	request, data := snapshot(t, connect(t, first.ClientURL()))
	dir := t.TempDir()

	p := startGateway(t, dir)
	restoreChunks(t, connect(t, p.URL), request, data[:len(data)/2])
	p.Kill()

	p = startGateway(t, dir)
	nc := connect(t, p.URL)
	js, ctx := jetStream(t, nc)
	if _, err := js.Stream(ctx, "S"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("half a stream is there: %v", err)
	}
	to := restoreChunks(t, nc, request, data)
	end, err := nc.Request(to, nil, 10*time.Second)
	noErr(t, err)
	p.Kill()
	if !strings.Contains(string(end.Data), `"last_seq":300`) {
		t.Fatalf("restore: %s", end.Data)
	}
	sameLines(t, "after a kill", contents(t, startGateway(t, dir).URL), want)
}

// snapshot takes a backup of stream S; request is what a restore of it asks for.
func snapshot(t *testing.T, nc *nats.Conn) (request, data []byte) {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	noErr(t, err)
	head, err := nc.Request("$JS.API.STREAM.SNAPSHOT.S", []byte(`{"deliver_subject":"`+inbox+`"}`), 5*time.Second)
	noErr(t, err)
	var about struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	noErr(t, json.Unmarshal(head.Data, &about))
	request, err = json.Marshal(about)
	noErr(t, err)
	for {
		m, err := sub.NextMsg(5 * time.Second)
		noErr(t, err)
		if len(m.Data) == 0 {
			return request, data
		}
		data = append(data, m.Data...)
		if m.Reply != "" {
			noErr(t, m.Respond(nil))
		}
	}
}

// restoreChunks starts a restore and sends data; it returns where the end is to be sent.
func restoreChunks(t *testing.T, nc *nats.Conn, request, data []byte) (to string) {
	t.Helper()
	m, err := nc.Request("$JS.API.STREAM.RESTORE.S", request, 5*time.Second)
	noErr(t, err)
	var resp struct {
		To string `json:"deliver_subject"`
	}
	noErr(t, json.Unmarshal(m.Data, &resp))
	for len(data) > 0 {
		n := min(4096, len(data))
		m, err := nc.Request(resp.To, data[:n], 5*time.Second)
		noErr(t, err)
		if len(m.Data) > 0 {
			t.Fatalf("restore: %s", m.Data)
		}
		data = data[n:]
	}
	return resp.To
}
