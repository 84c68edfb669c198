package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Twin is a stream and its consumers as both sides can be asked to have them, empty and under other names: what is
// compared is how they answer for this configuration.
type Twin struct {
	Config    server.StreamConfig
	Consumers []server.ConsumerConfig
}

// maxTwinConsumers bounds the consumers that are made for one comparison.
const maxTwinConsumers = 20

// NewTwin returns the twin of a stream. name is that of the twin, prefix begins its subjects.
func NewTwin(cfg server.StreamConfig, consumers []server.ConsumerConfig, name, prefix string) *Twin {
	t := &Twin{Config: cfg}
	c := &t.Config
	c.Name, c.Replicas, c.Placement, c.Metadata = name, 1, nil, nil
	c.Mirror, c.Sources, c.RePublish, c.SubjectTransform = nil, nil, nil, nil // see flip.Unsupported
	c.FirstSeq, c.Sealed = 0, false
	c.Description = "made by ehdb-gateway to compare answers; it can be deleted"
	const enough = 1 << 20
	if c.MaxBytes > enough {
		c.MaxBytes = enough
	}
	c.Subjects = nil
	for _, s := range cfg.Subjects {
		c.Subjects = append(c.Subjects, prefix+"."+s)
	}
	if len(c.Subjects) == 0 {
		c.Subjects = []string{prefix + "." + name}
	}
	for i, in := range consumers {
		if i == maxTwinConsumers {
			break
		}
		if in.DeliverSubject != "" {
			in.DeliverSubject = prefix + ".deliver"
		}
		if in.FilterSubject != "" {
			in.FilterSubject = prefix + "." + in.FilterSubject
		}
		filters := in.FilterSubjects
		in.FilterSubjects = nil
		for _, f := range filters {
			in.FilterSubjects = append(in.FilterSubjects, prefix+"."+f)
		}
		in.Replicas, in.PauseUntil, in.Metadata = 0, nil, nil
		if in.DeliverPolicy == server.DeliverByStartSequence {
			in.OptStartSeq = 1
		}
		in.Name = fmt.Sprintf("c%d", i)
		if in.Durable != "" {
			in.Durable = in.Name
		}
		t.Consumers = append(t.Consumers, in)
	}
	return t
}

// Key is equal for twins that are alike but for names.
func (t *Twin) Key() string {
	c := *t
	c.Config.Name = ""
	doc, err := json.Marshal(c)
	if err != nil {
		panic("probe: " + err.Error())
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:16])
}

// question is one request to both sides.
type question struct {
	subject string
	header  string
	body    any // []byte as it is, else as JSON
}

// questions are what is asked about a twin, in this order.
func (t *Twin) questions() (list []question) {
	c := &t.Config
	ask := func(verb string, body any) {
		list = append(list, question{subject: "$JS.API." + verb, body: body})
	}
	subject := literal(c.Subjects[0])
	publish := func(header string) {
		if header != "" {
			header = "NATS/1.0\r\n" + header + "\r\n\r\n"
		}
		list = append(list, question{subject, header, []byte("probe")})
	}
	ask("STREAM.CREATE."+c.Name, c)
	ask("STREAM.CREATE."+c.Name, c)
	ask("STREAM.INFO."+c.Name, nil)
	ask("STREAM.NAMES", map[string]any{"subject": c.Subjects[0]})
	for _, in := range t.Consumers {
		ask("CONSUMER.CREATE."+c.Name+"."+in.Name, server.CreateConsumerRequest{Stream: c.Name, Config: in})
		ask("CONSUMER.INFO."+c.Name+"."+in.Name, nil)
	}
	ask("CONSUMER.NAMES."+c.Name, nil)
	ask("CONSUMER.LIST."+c.Name, nil)
	ask("CONSUMER.INFO."+c.Name+".nobody", nil)
	ask("CONSUMER.DELETE."+c.Name+".nobody", nil)
	publish("")
	publish("Nats-Msg-Id: 1")
	publish("Nats-Msg-Id: 1")
	publish("Nats-Expected-Last-Sequence: 4711")
	publish("Nats-Expected-Stream: OTHER")
	for _, get := range []map[string]any{{"seq": 1}, {"seq": 4711}, {"last_by_subj": subject}, {}} {
		ask("STREAM.MSG.GET."+c.Name, get)
	}
	ask("STREAM.MSG.DELETE."+c.Name, map[string]any{"seq": 4711})
	ask("STREAM.UPDATE."+c.Name, c)
	ask("STREAM.INFO."+c.Name, map[string]any{"deleted_details": true, "subjects_filter": ">"})
	ask("STREAM.PURGE."+c.Name, map[string]any{"filter": subject})
	for _, in := range t.Consumers {
		ask("CONSUMER.DELETE."+c.Name+"."+in.Name, nil)
	}
	ask("STREAM.DELETE."+c.Name, nil)
	ask("STREAM.INFO."+c.Name, nil)
	return list
}

// literal is a subject that a filter selects.
func literal(filter string) string {
	tokens := strings.Split(filter, ".")
	for i, t := range tokens {
		if t == "*" || t == ">" {
			tokens[i] = "x"
		}
	}
	return strings.Join(tokens, ".")
}

// Answers is the outcome of one comparison of answers.
type Answers struct {
	At            time.Time
	Equal, Differ int
	Ignored       int
	Differences   []parity.APIVerdict
}

// Compare asks both sides the same about t and compares the answers, which are counted in api too. An error means that
// the servers could not be asked; an answer that the gateway does not give is a difference.
func (t *Twin) Compare(ctx context.Context, there, here Side, api *parity.API) (*Answers, error) {
	out := &Answers{}
	defer t.remove(ctx, there, here)
	t.remove(ctx, there, here)
	for _, q := range t.questions() {
		body, err := q.encode()
		if err != nil {
			return nil, err
		}
		a, b, errA, errB := both(ctx, there, here, &q, body)
		if errA != nil {
			return nil, fmt.Errorf("%s: %w", q.subject, errA)
		}
		if errB != nil {
			b = &Message{Data: []byte(errB.Error())}
		}
		v := api.Compare(q.subject, a.Data, b.Data)
		out.Ignored += v.Ignored
		if v.Equal {
			out.Equal++
			continue
		}
		out.Differ++
		out.Differences = append(out.Differences, v)
	}
	out.At = time.Now()
	return out, nil
}

func (q *question) encode() ([]byte, error) {
	if b, ok := q.body.([]byte); ok || q.body == nil {
		return b, nil
	}
	return json.Marshal(q.body)
}

// both asks both sides at once.
func both(ctx context.Context, there, here Side, q *question, body []byte) (a, b *Message, errA, errB error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { a, errA = there.Request(ctx, q.subject, []byte(q.header), body) })
	b, errB = here.Request(ctx, q.subject, []byte(q.header), body)
	wg.Wait()
	return a, b, errA, errB
}

// remove deletes what is left of the twin.
func (t *Twin) remove(ctx context.Context, sides ...Side) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	for _, s := range sides {
		_, _ = s.Request(ctx, "$JS.API.STREAM.DELETE."+t.Config.Name, nil, nil) // the next comparison does it else
	}
}
