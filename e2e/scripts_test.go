package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// scriptClient plays a script of one command a line and records what it receives after each.
//
//	api SUBJECT BODY    an API request
//	pub SUBJECT DATA    a publish, with its PubAck
//	sub, unsub SUBJECT
//	pull C INBOX BODY   a pull request of consumer C of stream S; PIN is the newest Nats-Pin-Id
//	ack SEQ BODY        an ack of the message with that stream sequence; acksync waits for the confirmation
//	sleep DURATION
type scriptClient struct {
	t          *testing.T
	nc         *nats.Conn
	tr         *transcript
	subs       map[string]*nats.Subscription
	acks       map[string]*nats.Msg // by stream sequence
	advisories *nats.Subscription
	pin        string
}

func newScriptClient(t *testing.T, url string, tr *transcript) *scriptClient {
	c := &scriptClient{t: t, nc: connect(t, url), tr: tr}
	c.subs, c.acks = map[string]*nats.Subscription{}, map[string]*nats.Msg{}
	c.advisories = subscribe(t, c.nc, "$JS.EVENT.>")
	return c
}

func (c *scriptClient) run(script string) {
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		cmd, arg, _ := strings.Cut(line, " ")
		c.tr.Add("> %s", line)
		c.step(cmd, arg)
		noErr(c.t, c.nc.Flush())
		if cmd != "acksync" {
			c.drain()
		}
	}
}

func (c *scriptClient) step(cmd, arg string) {
	first, rest, _ := strings.Cut(arg, " ")
	switch cmd {
	case "api":
		api(c.t, c.nc, c.tr, arg)
	case "pub":
		publish(c.t, c.nc, c.tr, arg)
	case "sub":
		c.subs[arg] = subscribe(c.t, c.nc, arg)
	case "unsub":
		noErr(c.t, c.subs[arg].Unsubscribe())
		delete(c.subs, arg)
	case "pull":
		inbox, body, _ := strings.Cut(rest, " ")
		body = strings.ReplaceAll(body, "PIN", c.pin)
		noErr(c.t, c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S."+first, inbox, []byte(body)))
	case "ack":
		noErr(c.t, c.nc.Publish(c.answer(first), []byte(rest)))
	case "acksync":
		c.ackSync(c.answer(first), rest)
	case "sleep":
		d, err := time.ParseDuration(arg)
		noErr(c.t, err)
		time.Sleep(d)
	default:
		c.t.Fatalf("unknown command %q", cmd)
	}
}

// answer returns the reply subject of the newest delivery of the message with a stream sequence.
func (c *scriptClient) answer(seq string) string {
	m := c.acks[seq]
	if m == nil {
		c.tr.Add("message %s was not received", seq)
		return "nowhere"
	}
	return m.Reply
}

func (c *scriptClient) ackSync(reply, body string) {
	r, err := c.nc.Request(reply, []byte(body), c.tr.patience(300*time.Millisecond))
	if err != nil {
		c.tr.Add("acksync: %v", err)
		return
	}
	c.received("acksync", r)
}

// drain records what has been received.
func (c *scriptClient) drain() {
	c.tr.timed = true
	time.Sleep(time.Duration(60+30*c.tr.again) * time.Millisecond) // the scripts' own pauses leave room for so much
	for _, name := range slices.Sorted(maps.Keys(c.subs)) {
		for {
			m, err := c.subs[name].NextMsg(time.Millisecond)
			if err != nil {
				break
			}
			c.received(name+" <-", m)
		}
	}
	var events []string
	for {
		m, err := c.advisories.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		if e := event(m); e != "" {
			events = append(events, e)
		}
	}
	slices.Sort(events) // they come in no order
	for _, e := range events {
		c.tr.Add("event %s", e)
	}
}

// received records a message and keeps it for its ack.
func (c *scriptClient) received(label string, m *nats.Msg) {
	if pin := m.Header.Get("Nats-Pin-Id"); pin != "" {
		c.pin = pin
		m.Header.Set("Nats-Pin-Id", "<pin>")
	}
	if strings.HasPrefix(m.Reply, "$JS.ACK.") {
		f := strings.Split(m.Reply, ".")
		c.acks[f[5]] = m
		label += fmt.Sprintf(" count=%s seq=%s dseq=%s pending=%s", f[4], f[5], f[6], f[8])
	}
	c.tr.Msg(label, m)
}

// event returns an advisory for the transcript, "" for those of the API and of streams and consumers that change.
func event(m *nats.Msg) string {
	for _, part := range []string{".API", ".CREATED", ".UPDATED"} {
		if strings.Contains(m.Subject, part) {
			return ""
		}
	}
	var v map[string]any
	if err := json.Unmarshal(m.Data, &v); err != nil {
		return fmt.Sprintf("%s %q: %v", m.Subject, m.Data, err)
	}
	for _, key := range []string{"id", "timestamp", "ack_time", "pinned_id", "pause_until"} {
		if v[key] != nil {
			v[key] = "<" + key + ">"
		}
	}
	return fmt.Sprint(m.Subject, " ", v)
}

// givesUp are the scripts in which messages are given up by max_deliver. The ack floor moves past them here and not in
// nats-server, so it is left out.
var givesUp = []string{"acks", "ack wait", "backoff", "work queue"}

func TestConsumerScripts(t *testing.T) {
	for name, script := range consumerScripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				newScriptClient(t, e.URL, tr).run(script)
				if slices.Contains(givesUp, name) {
					for i, line := range tr.lines {
						tr.lines[i] = ackFloor.ReplaceAllString(line, `"ack_floor":{}`)
					}
				}
			})
		})
	}
}

var ackFloor = regexp.MustCompile(`"ack_floor":\{[^}]*\}`)
