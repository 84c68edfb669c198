package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestOperatorInventory plays the scripts of testdata/operators on nats-server and on the gateway: statement by
// statement what operators and their tools build on, with all values of the answers, but for those that differ between
// any two servers. A section is a configuration, a line ---, and steps:
//
//	get PATH                     asks the monitoring port
//	USER ask SUBJECT [BODY]      sends a request; USER is a connection of that user, or one made by connect
//	USER pub SUBJECT [BODY]      publishes; SUBJECT?A=b&C=d adds headers, SUBJECT>REPLY a reply subject
//	USER sub SUBJECT [QUEUE]     subscribes, for hear
//	USER hear [N]                tells what came since; at most N messages
//	USER serve SUBJECT [BODY]    answers requests
//	USER close, USER connect AS  ends a connection; makes another one of the user AS
//	refused USER                 tries to log in with a wrong password
//	cli USER COMMAND             runs the nats CLI
//	wait MILLISECONDS
//
// <id> is the server's id, <cid X> the id of X's connection. Facts of an answer that match /regexp/ before a step may
// differ; one of them must.
func TestOperatorInventory(t *testing.T) {
	paths, err := filepath.Glob("testdata/operators/*.txt")
	noErr(t, err)
	if len(paths) == 0 {
		t.Fatal("no scripts")
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		noErr(t, err)
		for _, section := range strings.Split("\n"+string(b), "\n## ")[1:] {
			name, text, _ := strings.Cut(section, "\n")
			conf, steps, _ := strings.Cut(text, "\n---\n")
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+name, func(t *testing.T) {
				t.Parallel() // it waits most of the time
				playOperators(t, conf, operatorSteps(t, steps))
			})
		}
	}
}

// operatorStep is a step, and what may differ in its answer.
type operatorStep struct {
	text    string
	differs *regexp.Regexp
}

var differingStep = regexp.MustCompile(`^/(.*)/ +(\S.*)$`)

func operatorSteps(t *testing.T, text string) (out []operatorStep) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		step := operatorStep{text: line}
		if m := differingStep.FindStringSubmatch(line); m != nil {
			re, err := regexp.Compile(m[1])
			noErr(t, err)
			step = operatorStep{m[2], re}
		}
		out = append(out, step)
	}
	return out
}

// playOperators plays the steps on both servers, again and with more patience if they differ.
func playOperators(t *testing.T, conf string, steps []operatorStep) {
	t.Helper()
	for again := 0; ; again++ {
		tr := &transcript{again: again}
		s := startOracle(t, func(o *server.Options) {
			o.ServerName = ""
			noErr(t, o.ProcessConfigFile(writeFile(t, "oracle.conf", conf)))
		})
		p := startGateway(t, t.TempDir(), "-c", writeFile(t, "gateway.conf", loose()+conf))
		want := newOperatorSide(t, tr, endpoint{"nats-server", s.ClientURL(), "http://" + s.MonitorAddr().String()})
		got := newOperatorSide(t, tr, endpoint{"gateway", p.URL, p.Monitor})
		var differences []string
		for _, step := range steps {
			differences = append(differences, step.compare(want.do(step.text), got.do(step.text))...)
		}
		want.closeAll()
		got.closeAll()
		if len(differences) == 0 {
			return
		}
		if again == maxReplays || os.Getenv("EHDB_E2E_ONCE") != "" {
			t.Error(strings.Join(differences, "\n"))
			return
		}
		t.Logf("played again with more patience, for\n%s", strings.Join(differences, "\n"))
	}
}

// ownBytes are totals of bytes, which depend on the lengths of ids and figures in answers.
const ownBytes = `out_bytes|out_client_bytes|bytes_to|sent\.bytes|sent_to_clients\.bytes|account_detail\.responses`

func (s operatorStep) compare(want, got map[string]bool) (out []string) {
	expected := ownWay + "|" + ownBytes
	if s.differs != nil {
		expected += "|" + s.differs.String()
		found := func(a, b map[string]bool) bool {
			return slices.ContainsFunc(onlyIn(a, b, nil), s.differs.MatchString)
		}
		if !found(want, got) && !found(got, want) {
			out = append(out, fmt.Sprintf("%s: nothing differs that matches %s", s.text, s.differs))
		}
	}
	differs := regexp.MustCompile(expected)
	if lacks := onlyIn(want, got, differs); len(lacks) > 0 {
		out = append(out, fmt.Sprintf("%s lacks\n\t%s", s.text, strings.Join(lacks, "\n\t")))
	}
	if adds := onlyIn(got, want, differs); len(adds) > 0 {
		out = append(out, fmt.Sprintf("%s adds\n\t%s", s.text, strings.Join(adds, "\n\t")))
	}
	return out
}

// operatorSide is one side of a script.
type operatorSide struct {
	t       *testing.T
	tr      *transcript
	e       endpoint
	clients map[string]*nats.Conn
	inbox   map[string]chan *nats.Msg
}

func newOperatorSide(t *testing.T, tr *transcript, e endpoint) *operatorSide {
	return &operatorSide{t: t, tr: tr, e: e, clients: map[string]*nats.Conn{}, inbox: map[string]chan *nats.Msg{}}
}

func (o *operatorSide) closeAll() {
	for _, nc := range o.clients {
		nc.Close()
	}
}

// client returns the connection called name, one of the user of that name if there is none yet.
func (o *operatorSide) client(name, user string) *nats.Conn {
	if nc := o.clients[name]; nc != nil {
		return nc
	}
	opts := []nats.Option{nats.Name(name), nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if user != "-" {
		opts = append(opts, nats.UserInfo(user, user))
	}
	nc := connect(o.t, o.e.URL, opts...)
	o.clients[name] = nc
	return nc
}

// do does one step and returns what there is to say about it.
func (o *operatorSide) do(text string) map[string]bool {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "get":
		return o.get(rest)
	case "wait":
		ms, err := strconv.Atoi(rest)
		noErr(o.t, err)
		o.tr.pause(time.Duration(ms) * time.Millisecond)
		return nil
	case "refused":
		_, err := nats.Connect(o.e.URL, nats.UserInfo(rest, "wrong"), nats.Name("wrong"))
		return map[string]bool{fmt.Sprint(err): true}
	case "cli":
		user, command, _ := strings.Cut(rest, " ")
		var tr transcript
		out, err := runCLI(needCLI(o.t), o.t.TempDir(), strings.Replace(o.e.URL, "//", "//"+user+":"+user+"@", 1), o.fill(o.client("sys", "sys"), command))
		addRows(&tr, command, out)
		return map[string]bool{fmt.Sprintf("%v %s", err, strings.Join(tr.lines, "\n")): true}
	}
	verb, args, _ := strings.Cut(rest, " ")
	if verb == "connect" {
		o.client(word, args)
		return nil
	}
	nc := o.client(word, word)
	subject, body, _ := strings.Cut(o.fill(nc, args), " ")
	switch verb {
	case "ask":
		return o.ask(nc, scriptMessage(subject, body))
	case "pub":
		noErr(o.t, nc.PublishMsg(scriptMessage(subject, body)))
		noErr(o.t, nc.Flush())
	case "sub":
		if o.inbox[word] == nil {
			o.inbox[word] = make(chan *nats.Msg, 10_000)
		}
		_, err := nc.ChanQueueSubscribe(subject, body, o.inbox[word])
		noErr(o.t, err)
		noErr(o.t, nc.Flush())
	case "serve":
		_, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(body)) })
		noErr(o.t, err)
		noErr(o.t, nc.Flush())
	case "hear":
		return o.hear(nc, o.inbox[word], args)
	case "close":
		nc.Close()
		delete(o.clients, word)
		o.tr.pause(50 * time.Millisecond)
	default:
		o.t.Fatalf("no step %q", text)
	}
	return nil
}

var connectionID = regexp.MustCompile(`<cid (\w+)>`)

// fill puts ids in the place of their names.
func (o *operatorSide) fill(nc *nats.Conn, text string) string {
	return o.cids(strings.ReplaceAll(text, "<id>", nc.ConnectedServerId()))
}

func (o *operatorSide) cids(text string) string {
	return connectionID.ReplaceAllStringFunc(text, func(s string) string {
		name := connectionID.FindStringSubmatch(s)[1]
		cid, err := o.client(name, name).GetClientID()
		noErr(o.t, err)
		return fmt.Sprint(cid)
	})
}

// scriptMessage reads SUBJECT?HEADER=value&HEADER=value>REPLY.
func scriptMessage(subject, body string) *nats.Msg {
	subject, reply, _ := strings.Cut(subject, ">>")
	subject, headers, _ := strings.Cut(subject, "?")
	m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte(body)}
	for h := range strings.SplitSeq(headers, "&") {
		if name, value, ok := strings.Cut(h, "="); ok {
			if m.Header == nil {
				m.Header = nats.Header{}
			}
			m.Header[name] = append(m.Header[name], value)
		}
	}
	return m
}

func (o *operatorSide) ask(nc *nats.Conn, m *nats.Msg) map[string]bool {
	answer, err := nc.RequestMsg(m, o.tr.patience(time.Second))
	if err != nil {
		return map[string]bool{err.Error(): true}
	}
	out := o.facts(nc, answer.Data)
	out[fmt.Sprintf("header %v", answer.Header)] = true
	return out
}

// totalTime is how long a request took all in all.
var totalTime = regexp.MustCompile(`"total":\d{5,}`)

// facts are those of an answer, without the server's own id.
func (o *operatorSide) facts(nc *nats.Conn, doc []byte) map[string]bool {
	doc = totalTime.ReplaceAll(doc, []byte(`"total":"some"`))
	return facts(o.t, bytes.ReplaceAll(doc, []byte(nc.ConnectedServerId()), []byte("<id>")))
}

func (o *operatorSide) get(path string) map[string]bool {
	a := getPage(o.t, o.e.Monitor+o.cids(path))
	out := facts(o.t, a.body)
	out["status "+a.status] = true
	for _, h := range []string{"Content-Type", "Access-Control-Allow-Origin"} {
		out[fmt.Sprintf("%s: %q", h, a.header.Get(h))] = true
	}
	return out
}

// hear takes what comes until nothing has for a moment, or as many messages as limit says, in no order.
func (o *operatorSide) hear(nc *nats.Conn, inbox chan *nats.Msg, limit string) map[string]bool {
	var came [][]string // of each message its subject and all else
	most, err := strconv.Atoi(cmp.Or(limit, "1000"))
	noErr(o.t, err)
	for wait := o.tr.patience(200 * time.Millisecond); ; {
		if len(came) == most {
			inbox, wait = nil, 0
		}
		select {
		case m := <-inbox:
			line := fmt.Sprintf("%s %s reply=%v", strings.ReplaceAll(m.Subject, nc.ConnectedServerId(), "<id>"), shownHeader(m), m.Reply != "")
			came = append(came, append([]string{line}, slices.Sorted(maps.Keys(o.facts(nc, m.Data)))...))
		case <-time.After(wait):
			slices.SortFunc(came, slices.Compare[[]string])
			out, times := map[string]bool{}, map[string]int{}
			for _, facts := range came {
				times[facts[0]]++
				for _, fact := range facts[1:] {
					out[fmt.Sprintf("%s (%d) %s", facts[0], times[facts[0]], fact)] = true
				}
			}
			return out
		}
	}
}

// shownHeader is a message's header, of what is told about a requestor the names alone.
func shownHeader(m *nats.Msg) string {
	h := nats.Header{}
	for name, values := range m.Header {
		var v any
		if json.Unmarshal([]byte(values[0]), &v) == nil && strings.HasPrefix(values[0], "{") {
			values = []string{shape(v, "acc", "svc", "user", "name")}
		}
		if strings.HasPrefix(values[0], "_R_.") {
			values = []string{"a way back"}
		}
		h[name] = values
	}
	return fmt.Sprint(h)
}
