package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// churn changes streams and consumers at random from many clients, while others publish and consume.
type churn struct {
	p *process
	t *testing.T
}

const (
	churnClients   = 16
	churnStreams   = 4
	churnConsumers = 3
)

// churnRetention is the retention of a stream.
func churnRetention(stream int) string {
	return []string{"limits", "limits", "interest", "workqueue"}[stream]
}

// TestChurn: whatever many clients do to consumers and their streams at the same time, no consumer stalls or loses count,
// and in the end each has delivered all that it owes.
func TestChurn(t *testing.T) {
	t.Parallel()
	c := &churn{p: startGateway(t, t.TempDir(), "-m", "-1"), t: t}
	nc := connect(t, c.p.URL)
	for s := range churnStreams {
		c.call(nc, fmt.Sprintf("STREAM.CREATE.S%d", s), fmt.Sprintf(
			`{"name":"S%d","subjects":["s%d.>"],"retention":"%s","max_msgs_per_subject":%d,"allow_rollup_hdrs":true}`,
			s, s, churnRetention(s), []int{-1, 2, -1, -1}[s]))
		for n := range churnConsumers {
			c.makeConsumer(nc, s, n, 0)
		}
	}
	seed := rand.Uint64() //nolint:gosec // printed
	t.Logf("seed %d", seed)
	end := time.Now().Add(soakFor())
	var wg sync.WaitGroup
	for i := range uint64(churnClients) {
		client := connect(t, c.p.URL)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, i)) //nolint:gosec // reproducible
			for time.Now().Before(end) {
				c.step(client, r)
			}
		})
	}
	wg.Wait()
	for s := range churnStreams {
		for n := range churnConsumers {
			c.settle(nc, s, n)
		}
	}
	c.watches()
}

// call makes an API call; a refusal is an answer like any other.
func (c *churn) call(nc *nats.Conn, subject, body string) []byte {
	m, err := nc.Request("$JS.API."+subject, []byte(body), 20*time.Second)
	if errors.Is(err, nats.ErrNoResponders) { // what is there only with a consumer
		return nil
	}
	if err != nil {
		c.t.Errorf("%s %s: %v", subject, body, err)
		return nil
	}
	return m.Data
}

// churnFilter is a filter of a consumer; those of a work queue do not overlap.
func churnFilter(s, n, variant int) string {
	if churnRetention(s) == "workqueue" || variant == 0 {
		return fmt.Sprintf("s%d.%d.>", s, n)
	}
	return fmt.Sprintf("s%d.>", s)
}

func (c *churn) makeConsumer(nc *nats.Conn, s, n, variant int) {
	c.call(nc, fmt.Sprintf("CONSUMER.CREATE.S%d.C%d", s, n), fmt.Sprintf(
		`{"stream_name":"S%d","config":{"durable_name":"C%d","ack_policy":"explicit","ack_wait":1000000000,"max_ack_pending":50,"filter_subject":"%s"}}`,
		s, n, churnFilter(s, n, variant)))
}

// step does one thing.
func (c *churn) step(nc *nats.Conn, r *rand.Rand) {
	s, n := r.IntN(churnStreams), r.IntN(churnConsumers)
	stream, consumer := fmt.Sprintf("S%d", s), fmt.Sprintf("S%d.C%d", s, n)
	subject := fmt.Sprintf("s%d.%d.%d", s, n, r.IntN(8))
	switch w := r.IntN(100); {
	case w < 40:
		for range 1 + r.IntN(20) {
			_ = nc.Publish(subject, []byte("x")) // the connection lasts
		}
	case w < 75:
		c.consume(nc, r, consumer, 1+r.IntN(20))
	case w < 80:
		c.call(nc, "STREAM.PURGE."+stream, fmt.Sprintf(`{"filter":"%s"}`, subject))
	case w < 82:
		c.call(nc, "STREAM.PURGE."+stream, fmt.Sprintf(`{"keep":%d}`, r.IntN(30)))
	case w < 88:
		c.call(nc, "STREAM.MSG.DELETE."+stream, fmt.Sprintf(`{"seq":%d}`, c.near(nc, r, stream)))
	case w < 90:
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-Rollup", "sub")
		_ = nc.PublishMsg(m)
	case w < 94:
		c.makeConsumer(nc, s, n, r.IntN(2)) // an update
	case w < 95:
		c.call(nc, "CONSUMER.DELETE."+consumer, "")
		c.makeConsumer(nc, s, n, r.IntN(2))
	case w < 97:
		c.call(nc, "CONSUMER.RESET."+consumer, "")
	case w < 98:
		until := time.Now().Add(50 * time.Millisecond).UTC().Format(time.RFC3339Nano)
		c.call(nc, "CONSUMER.PAUSE."+consumer, fmt.Sprintf(`{"pause_until":"%s"}`, until))
	default:
		c.call(nc, "CONSUMER.INFO."+consumer, "")
	}
}

// near is a sequence that the stream may have.
func (c *churn) near(nc *nats.Conn, r *rand.Rand, stream string) uint64 {
	st := c.state(nc, stream)
	return st.FirstSeq + r.Uint64N(st.LastSeq-min(st.FirstSeq, st.LastSeq)+2)
}

func (c *churn) state(nc *nats.Conn, stream string) jetstream.StreamState {
	var info jetstream.StreamInfo
	if b := c.call(nc, "STREAM.INFO."+stream, ""); json.Unmarshal(b, &info) != nil {
		c.t.Errorf("%s: %s", stream, b)
	}
	return info.State
}

// consume asks for some messages and does with each what a client may do.
func (c *churn) consume(nc *nats.Conn, r *rand.Rand, consumer string, n int) {
	for _, m := range c.fetch(nc, consumer, n, []string{`"no_wait":true`, `"expires":100000000`}[r.IntN(2)]) {
		switch r.IntN(10) {
		case 0:
			_ = m.Nak()
		case 1:
			_ = m.NakWithDelay(time.Duration(r.IntN(300)) * time.Millisecond)
		case 2:
			_ = m.Term()
		case 3: // forgotten
		case 4:
			_ = m.InProgress()
		default:
			_ = m.Ack()
		}
	}
}

// fetch returns what comes for one pull request, which waits as patience says.
func (c *churn) fetch(nc *nats.Conn, consumer string, n int, patience string) (out []*nats.Msg) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		c.t.Error(err)
		return nil
	}
	defer func() { _ = sub.Unsubscribe() }()
	body := fmt.Sprintf(`{"batch":%d,%s}`, n, patience)
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+consumer, sub.Subject, []byte(body)); err != nil {
		c.t.Error(err)
	}
	for len(out) < n {
		m, err := sub.NextMsg(10 * time.Second)
		if errors.Is(err, nats.ErrNoResponders) { // the consumer is deleted just now
			return out
		}
		if err != nil {
			c.t.Errorf("%s: a pull request was not answered: %v", consumer, err)
			return out
		}
		if m.Header.Get("Status") != "" {
			return out
		}
		out = append(out, m)
	}
	return out
}

// settle compares what a consumer says it owes with what the stream has, and takes all of it.
func (c *churn) settle(nc *nats.Conn, s, n int) {
	consumer := fmt.Sprintf("S%d.C%d", s, n)
	info := func() (i jetstream.ConsumerInfo) {
		if b := c.call(nc, "CONSUMER.INFO."+consumer, ""); json.Unmarshal(b, &i) != nil || i.Name == "" {
			c.t.Errorf("%s: %s", consumer, b)
		}
		return i
	}
	i := info()
	state := c.state(nc, fmt.Sprintf("S%d", s))
	counted := uint64(0)
	for seq := max(i.Delivered.Stream+1, state.FirstSeq); seq <= state.LastSeq; counted++ {
		var got struct{ Message *struct{ Seq uint64 } }
		b := c.call(nc, fmt.Sprintf("STREAM.MSG.GET.S%d", s), fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s"}`, seq, i.Config.FilterSubject))
		if json.Unmarshal(b, &got) != nil || got.Message == nil {
			break
		}
		seq = got.Message.Seq + 1
	}
	if again := info(); again.NumPending != counted && again.Delivered == i.Delivered {
		c.t.Errorf("%s: %d pending after %d, the stream has %d", consumer, again.NumPending, again.Delivered.Stream, counted)
	}
	for end := time.Now().Add(time.Minute); i.NumPending > 0 || i.NumAckPending > 0; i = info() {
		if time.Now().After(end) {
			c.t.Errorf("%s does not come to its end: %d pending, %d outstanding", consumer, i.NumPending, i.NumAckPending)
			return
		}
		for _, m := range c.fetch(nc, consumer, 100, `"expires":100000000`) {
			_ = m.AckSync()
		}
	}
}

// watches looks at what the gateway's own watches say.
func (c *churn) watches() {
	resp, err := http.Get(c.p.Monitor + "/metrics")
	if err != nil {
		c.t.Error(err)
		return
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	noErr(c.t, err)
	for _, line := range []string{"\nehdb_consumer_stalled 0\n", "\nehdb_consumer_miscounted_total 0\n"} {
		if !strings.Contains(string(page), line) {
			c.t.Errorf("the metrics page has no line%q", line)
		}
	}
}
