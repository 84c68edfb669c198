package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The examples of docs/extensions.md, see TestExtensionsDoc.

func deadLetterExample(ctx context.Context, js jetstream.JetStream) error {
	// docs: dead_letter
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "ORDERS_DEAD", Subjects: []string{"dead.orders"}},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			return err
		}
	}
	worker, err := js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3,
		Metadata: map[string]string{"ehdb.dead_letter": "ORDERS_DEAD"},
	})
	if err != nil {
		return err
	}
	if _, err = js.Publish(ctx, "orders.7", []byte("not an order")); err != nil {
		return err
	}
	msg, err := worker.Next()
	if err != nil {
		return err
	}
	if err := msg.TermWithReason("cannot be parsed"); err != nil {
		return err
	}

	dead, err := js.OrderedConsumer(ctx, "ORDERS_DEAD", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	letter, err := dead.Next()
	if err != nil {
		return err
	}
	fmt.Println(letter.Subject(), string(letter.Data()))               // orders.7 not an order
	fmt.Println(letter.Headers().Get("Ehdb-Dead-Letter-Reason"))       // terminated
	fmt.Println(letter.Headers().Get("Ehdb-Dead-Letter-Text"))         // cannot be parsed
	fmt.Println(letter.Headers().Get("Ehdb-Dead-Letter-Consumer"))     // worker
	_, err = js.Publish(ctx, letter.Subject(), []byte("now an order")) // once it is repaired: back to work
	return err
	// end
}

func nakBackoffExample(ctx context.Context, js jetstream.JetStream) error {
	// docs: nak_backoff
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "MAIL", Subjects: []string{"mail.>"}})
	if err != nil {
		return err
	}
	sender, err := js.CreateConsumer(ctx, "MAIL", jetstream.ConsumerConfig{
		Durable: "sender", AckPolicy: jetstream.AckExplicitPolicy,
		BackOff: []time.Duration{500 * time.Millisecond, 2 * time.Second, time.Minute}, MaxDeliver: 10,
		Metadata: map[string]string{"ehdb.nak_backoff": "true"},
	})
	if err != nil {
		return err
	}
	if _, err = js.Publish(ctx, "mail.1", []byte("hello")); err != nil {
		return err
	}
	msg, err := sender.Next()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := msg.Nak(); err != nil { // the server that takes mail is down
		return err
	}
	if msg, err = sender.Next(); err != nil {
		return err
	}
	fmt.Println(time.Since(began) >= 500*time.Millisecond) // true
	return msg.Ack()
	// end
}

func peekExample(ctx context.Context, js jetstream.JetStream) error {
	// docs: peek
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	if err != nil {
		return err
	}
	worker, err := js.CreateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	if _, err = js.Publish(ctx, "jobs.1", []byte("a job")); err != nil {
		return err
	}
	look, err := js.CreateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy,
		Metadata:  map[string]string{"ehdb.peek": "true"},
	})
	if err != nil {
		return err
	}
	waiting, err := look.Next()
	if err != nil {
		return err
	}
	fmt.Println(string(waiting.Data())) // a job
	job, err := worker.Next()
	if err != nil {
		return err
	}
	fmt.Println(string(job.Data())) // a job: it is still there for the worker
	return job.DoubleAck(ctx)
	// end
}

// TestExtensionExamples runs the examples.
func TestExtensionExamples(t *testing.T) {
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	for name, run := range map[string]func(context.Context, jetstream.JetStream) error{
		"dead_letter": deadLetterExample, "nak_backoff": nakBackoffExample, "peek": peekExample,
		"key_shared": keySharedExample,
	} {
		t.Run(name, func(t *testing.T) { noErr(t, run(ctx, js)) })
	}
}

// TestExtensionsDoc: the page has the examples as they are tested.
func TestExtensionsDoc(t *testing.T) {
	page, err := os.ReadFile("../docs/extensions.md")
	noErr(t, err)
	var source []byte
	for _, name := range []string{"extensions_test.go", "keyshared_test.go"} {
		text, err := os.ReadFile(name)
		noErr(t, err)
		source = append(source, text...)
	}
	blocks := 0
	for _, rest := range strings.Split(string(source), "\t// docs: ")[1:] {
		if !strings.Contains(rest, "\t// end\n") {
			continue
		}
		name, rest, _ := strings.Cut(rest, "\n")
		code, _, _ := strings.Cut(rest, "\t// end\n")
		code = strings.ReplaceAll(strings.TrimPrefix(code, "\t"), "\n\t", "\n")
		blocks++
		if !strings.Contains(string(page), "```go\n"+code+"```\n") {
			t.Errorf("docs/extensions.md has not the example %s:\n%s", name, code)
		}
	}
	if n := strings.Count(string(page), "```go\n"); n != blocks || n < 3 {
		t.Errorf("the page has %d examples, there are %d here", n, blocks)
	}
}

func must(t *testing.T, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	noErr(t, err)
	return n
}

func streamMsgs(t *testing.T, js jetstream.JetStream, name string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, name)
	noErr(t, err)
	return s.CachedInfo().State.Msgs
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	until(t, "it is to come to pass", 10*time.Second, met(ok))
}

func TestExtensionsRefused(t *testing.T) {
	p := startGateway(t, t.TempDir())
	nc := connect(t, p.URL)
	tr := &transcript{}
	api(t, nc, tr, `
		STREAM.CREATE.W {"name":"W","subjects":["w"],"retention":"workqueue"}
		STREAM.CREATE.L {"name":"L","subjects":["l"]}
		STREAM.CREATE.D {"name":"D","subjects":["d"]}
		STREAM.CREATE.M {"name":"M","subjects":["m"],"storage":"memory"}
		STREAM.CREATE.I {"name":"I","subjects":["i"],"retention":"interest"}
	`)
	for line, want := range map[string]string{
		`STREAM.CREATE.X {"name":"X","metadata":{"ehdb.peek":"true"}}`:                                                              `metadata key "ehdb.peek" is not known`,
		`STREAM.UPDATE.L {"name":"L","subjects":["l"],"metadata":{"ehdb.x":"y"}}`:                                                   `metadata key "ehdb.x" is not known`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.deadletter":"D"}}`:                                                            `those that begin with "ehdb." are ehdb.dead_letter, ehdb.key_shared, ehdb.nak_backoff, ehdb.peek`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.dead_letter":"N"}}`:                                                           `there is no stream "N": create it first`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.dead_letter":"L"}}`:                                                           `names the consumer's own stream`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.dead_letter":"a.b"}}`:                                                         `is no name of a stream`,
		`L {"ack_policy":"none","metadata":{"ehdb.dead_letter":"D"}}`:                                                               `needs ack_policy explicit`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.dead_letter":"M"}}`:                                                           `stored in the same place`,
		`L {"ack_policy":"explicit","mem_storage":true,"metadata":{"ehdb.dead_letter":"D"}}`:                                        `stored in the same place`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.dead_letter":"I"}}`:                                                           `has interest retention`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.nak_backoff":"true"}}`:                                                        `needs a backoff`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.nak_backoff":"yes"}}`:                                                         `has to be true or false`,
		`L {"ack_policy":"none","metadata":{"ehdb.peek":"true"}}`:                                                                   `is for consumers of a stream with retention workqueue`,
		`W {"ack_policy":"explicit","metadata":{"ehdb.peek":"true"}}`:                                                               `needs ack_policy none`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.key_shared":"token:2"}}`:                                                      `ehdb.key_shared is "token:2", it has to be`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.key_shared":"subject:0"}}`:                                                    `number of a token from 1 to 255`,
		`L {"ack_policy":"explicit","metadata":{"ehdb.key_shared":"header:"}}`:                                                      `it has to be`,
		`L {"ack_policy":"explicit","deliver_subject":"d","metadata":{"ehdb.key_shared":"subject"}}`:                                `is for pull consumers`,
		`L {"ack_policy":"none","metadata":{"ehdb.key_shared":"subject"}}`:                                                          `needs ack_policy explicit`,
		`L {"ack_policy":"all","metadata":{"ehdb.key_shared":"subject"}}`:                                                           `needs ack_policy explicit`,
		`L {"ack_policy":"explicit","priority_groups":["g"],"priority_policy":"overflow","metadata":{"ehdb.key_shared":"subject"}}`: `cannot be combined with priority groups`,
		`L {"ack_policy":"explicit","replay_policy":"original","metadata":{"ehdb.key_shared":"subject"}}`:                           `needs replay_policy instant`,
		`L {"ack_policy":"explicit","max_ack_pending":-1,"metadata":{"ehdb.key_shared":"subject"}}`:                                 `needs a bounded max_ack_pending`,
		`W {"ack_policy":"none"}`:                                  `consumer in pull mode requires explicit ack policy on workqueue stream`,
		`W {"ack_policy":"none","metadata":{"ehdb.peek":"false"}}`: `consumer in pull mode requires explicit ack policy on workqueue stream`,
	} {
		subject, body, _ := strings.Cut(line, " ")
		if !strings.Contains(subject, ".") {
			body = fmt.Sprintf(`{"stream_name":%q,"config":{"durable_name":"C",%s}`, subject, body[1:])
			subject = "CONSUMER.DURABLE.CREATE." + subject + ".C"
		}
		answer := string(request(t, nc, "$JS.API."+subject, body))
		if !strings.Contains(strings.ReplaceAll(answer, `\"`, `"`), want) {
			t.Errorf("%s: %s\nwant: %s", line, answer, want)
		}
	}
}

// TestPeek: a consumer that peeks beside workers takes nothing, in no way, and does not stand in the way of workers.
func TestPeek(t *testing.T) {
	dir := t.TempDir()
	p := startGateway(t, dir)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	noErr(t, err)
	peek := jetstream.ConsumerConfig{
		Durable: "P", AckPolicy: jetstream.AckNonePolicy, Metadata: map[string]string{"ehdb.peek": "true"},
		FilterSubject: "w.a", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}
	looker, err := js.CreateConsumer(ctx, "W", peek)
	noErr(t, err)
	peek.Durable, peek.FilterSubject, peek.DeliverPolicy = "P2", "", jetstream.DeliverAllPolicy
	all, err := js.CreateConsumer(ctx, "W", peek)
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "W", jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "W", jetstream.ConsumerConfig{Durable: "C2", AckPolicy: jetstream.AckExplicitPolicy})
	if err == nil {
		t.Error("two workers for the same messages")
	}
	for _, s := range []string{"w.a", "w.b", "w.a"} {
		_, err = js.Publish(ctx, s, []byte(s))
		noErr(t, err)
	}
	see := func(c jetstream.Consumer, want int) {
		t.Helper()
		got, err := c.Fetch(10, jetstream.FetchMaxWait(300*time.Millisecond))
		noErr(t, err)
		n := 0
		for range got.Messages() {
			n++
		}
		if n != want {
			t.Errorf("%s saw %d, want %d", c.CachedInfo().Name, n, want)
		}
	}
	see(looker, 2)
	see(all, 3)
	if n := streamMsgs(t, js, "W"); n != 3 {
		t.Fatalf("%d messages are left", n)
	}
	p.Kill()
	p = startGateway(t, dir)
	js, ctx = jetStream(t, connect(t, p.URL))
	if n := streamMsgs(t, js, "W"); n != 3 {
		t.Fatalf("%d messages are left after a restart", n)
	}
	c, err := js.Consumer(ctx, "W", "C")
	noErr(t, err)
	see(c, 3)
	noErr(t, js.DeleteConsumer(ctx, "W", "P"))
	if n := streamMsgs(t, js, "W"); n != 3 {
		t.Fatalf("%d messages are left after the peeking consumer was deleted", n)
	}
}
