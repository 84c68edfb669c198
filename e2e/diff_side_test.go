package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// diffSide is one of the two servers a script of the differential test is played on, and what its client has received.
type diffSide struct {
	name  string
	url   func() string // changes with a restart
	stop  func()        // ends the server: nats-server as it likes to, the gateway by SIGKILL
	start func()        // starts it again with what it has on disk

	nc  *nats.Conn
	js  jetstream.JetStream
	mu  sync.Mutex
	box map[string][]string    // by the subject subscribed: what came, in the script's form
	got map[string][]*nats.Msg // by consumer "S.C": the deliveries that can be acknowledged
	sub map[string]*nats.Subscription
	pin string // the newest Nats-Pin-Id
}

// diffInboxes are always listened on: pull requests name one of them by its number.
const diffInboxes = 3

// diffTimeout is how long an answer may take.
const diffTimeout = 700 * time.Millisecond

// open connects and subscribes to what every script needs.
func (s *diffSide) open() (err error) {
	s.box, s.got, s.pin = map[string][]string{}, map[string][]*nats.Msg{}, ""
	return s.connect()
}

func (s *diffSide) connect() (err error) {
	s.sub = map[string]*nats.Subscription{}
	if s.nc, err = nats.Connect(s.url(), nats.Timeout(5*time.Second), nats.NoReconnect()); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return err
	}
	for _, subject := range []string{"ack", "rp.>", "fi.>", diffAdvisories} {
		if err := s.subscribe(subject); err != nil {
			return err
		}
	}
	for stream := range diffStreams {
		for _, c := range diffConsumers {
			for i := range diffInboxes {
				if err := s.subscribe(diffInbox(stream, c, strconv.Itoa(i))); err != nil {
					return err
				}
			}
		}
	}
	return s.nc.Flush()
}

const diffAdvisories = "$JS.EVENT.ADVISORY.>"

// diffInbox is the inbox of pull requests: one consumer to an inbox, for the order between consumers is nobody's promise.
func diffInbox(stream, consumer, n string) string { return "in." + stream + "." + consumer + "." + n }

func (s *diffSide) subscribe(subject string) error {
	if s.sub[subject] != nil {
		return nil
	}
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) { s.receive(subject, m) })
	s.sub[subject] = sub
	return err
}

func (s *diffSide) unsubscribe(subject string) error {
	sub := s.sub[subject]
	if sub == nil {
		return nil
	}
	delete(s.sub, subject)
	return sub.Unsubscribe()
}

// receive records a message that came for a subscription.
func (s *diffSide) receive(box string, m *nats.Msg) {
	if m.Header.Get("Status") == "100" { // heartbeats and flow control come by the clock, not by the script
		if m.Reply != "" {
			_ = m.Respond(nil) // the connection may be closing
		}
		return
	}
	if pin := m.Header.Get("Nats-Pin-Id"); pin != "" {
		s.mu.Lock()
		s.pin = pin
		s.mu.Unlock()
	}
	line := diffMsg(box, m)
	if line == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box[box] = append(s.box[box], line)
	if f := strings.Split(m.Reply, "."); strings.HasPrefix(m.Reply, "$JS.ACK.") && len(f) == 9 {
		key := f[2] + "." + f[3]
		s.got[key] = append(s.got[key], m)
	}
}

// received returns what came so far for each subscription, in the order in which it is compared: advisories have none.
func (s *diffSide) received() map[string][]string {
	out := s.arrivals()
	slices.Sort(out[diffAdvisories])
	return out
}

// arrivals returns what came so far for each subscription, in the order in which it came.
func (s *diffSide) arrivals() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]string, len(s.box))
	for k, v := range s.box {
		out[k] = slices.Clone(v)
	}
	return out
}

// close ends the connection and removes every stream.
func (s *diffSide) close() {
	for _, name := range s.streams() {
		_, _ = s.nc.Request("$JS.API.STREAM.DELETE."+name, nil, 5*time.Second) // the next script would notice
	}
	time.Sleep(20 * time.Millisecond) // what is told of that is not for the next script
	s.nc.Close()
}

func (s *diffSide) streams() []string {
	m, err := s.nc.Request("$JS.API.STREAM.NAMES", nil, 5*time.Second)
	if err != nil {
		return nil
	}
	var v struct{ Streams []string }
	if json.Unmarshal(m.Data, &v) != nil {
		return nil
	}
	slices.Sort(v.Streams)
	return v.Streams
}

// run plays one line and returns what is to be compared at once; the rest comes to the boxes. again: the same line once
// more, because the two answers differed (only for lines that read).
func (s *diffSide) run(line string) string {
	cmd, arg, _ := strings.Cut(line, " ")
	first, rest, _ := strings.Cut(arg, " ")
	switch cmd {
	case "api":
		return s.api(first, rest)
	case "pub":
		return s.publish(first, rest)
	case "fast":
		return s.fast(first, rest)
	case "get":
		return s.directGet(first, rest)
	case "req":
		return s.request(first, rest)
	case "pull":
		return s.pull(rest, first)
	case "ack", "acksync":
		return s.ack(cmd, first, rest)
	case "sub":
		return errText(s.subscribe(arg))
	case "unsub":
		return errText(s.unsubscribe(arg))
	case "kv":
		return s.keyValue(first, strings.Fields(rest))
	case "sleep":
		d, err := time.ParseDuration(arg)
		time.Sleep(d)
		return errText(err)
	case "check":
		return s.check()
	case "restart":
		return errText(s.restart())
	}
	return fmt.Sprintf("unknown command %q", cmd)
}

// restart ends the server and starts it again; the client's subscriptions come back.
func (s *diffSide) restart() error {
	subjects := slices.Sorted(maps.Keys(s.sub))
	s.nc.Close()
	s.stop()
	s.start()
	if err := s.connect(); err != nil {
		return err
	}
	for _, subject := range subjects {
		if err := s.subscribe(subject); err != nil {
			return err
		}
	}
	return s.nc.Flush()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}

func (s *diffSide) api(subject, body string) string {
	m, err := s.nc.Request("$JS.API."+subject, []byte(body), diffTimeout)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) {
		return "no answer" // "an API subject that nobody serves": no responders here, nats-server says nothing
	}
	if err != nil {
		return errText(err)
	}
	return diffJSON(m.Data)
}

// diffMessage is the message "DATA {header as JSON}".
func diffMessage(subject, text string) (*nats.Msg, error) {
	data, header, _ := strings.Cut(text, " ")
	m := nats.NewMsg(subject)
	if data != "-" {
		m.Data = []byte(data)
	}
	if header == "" {
		return m, nil
	}
	var h map[string]string
	if err := json.Unmarshal([]byte(header), &h); err != nil {
		return nil, err
	}
	for k, v := range h {
		m.Header[k] = []string{v}
	}
	return m, nil
}

// fast sends "DATA ID.FLOW.GAP.SEQ.OP {header as JSON}" as a message of a fast-ingest batch.
func (s *diffSide) fast(subject, rest string) string {
	f := strings.SplitN(rest, " ", 3)
	if len(f) < 3 {
		return "a message of a fast batch has three words"
	}
	m, err := diffMessage(subject, f[0]+" "+f[2])
	if err != nil {
		return errText(err)
	}
	m.Reply = "fi." + f[1] + ".$FI"
	return errText(s.nc.PublishMsg(m))
}

// publish sends "DATA {header as JSON}" as a request.
func (s *diffSide) publish(subject, rest string) string {
	m, err := diffMessage(subject, rest)
	if err != nil {
		return errText(err)
	}
	a, err := s.nc.RequestMsg(m, 400*time.Millisecond)
	if err != nil {
		return errText(err)
	}
	return string(a.Data) // byte for byte
}

// forget drops what came so far, but for what can be acknowledged.
func (s *diffSide) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.box)
}

// request sends "DATA {header as JSON}" and returns the answer with its header.
func (s *diffSide) request(subject, rest string) string {
	m, err := diffMessage(subject, rest)
	if err != nil {
		return errText(err)
	}
	a, err := s.nc.RequestMsg(m, diffTimeout)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) {
		return "no answer" // see api
	}
	if err != nil {
		return errText(err)
	}
	a.Data = []byte(diffJSON(a.Data))
	return diffMsg("get", a)
}

// directGet collects the answers of a direct get up to the one that ends it.
func (s *diffSide) directGet(subject, body string) string {
	sub, err := s.nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		return errText(err)
	}
	defer sub.Unsubscribe()
	if err := s.nc.PublishRequest("$JS.API.DIRECT.GET."+subject, sub.Subject, []byte(body)); err != nil {
		return errText(err)
	}
	many := strings.Contains(body, "batch") || strings.Contains(body, "multi_last")
	var out strings.Builder
	for {
		m, err := sub.NextMsg(500 * time.Millisecond)
		if err != nil {
			return out.String() + errText(err)
		}
		out.WriteString(diffMsg("get", m) + "\n")
		if m.Header.Get("Status") != "" || !many {
			return out.String()
		}
	}
}

// pull sends "CONSUMER N BODY" to the consumer of stream.
func (s *diffSide) pull(rest, stream string) string {
	f := strings.SplitN(rest, " ", 3)
	if len(f) < 3 {
		f = append(f, "")
	}
	s.mu.Lock()
	body := strings.ReplaceAll(f[2], "PIN", s.pin)
	s.mu.Unlock()
	subject := "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + f[0]
	if err := s.nc.PublishRequest(subject, diffInbox(stream, f[0], f[1]), []byte(body)); err != nil {
		return errText(err)
	}
	return ""
}

// ack sends "N BODY" for the Nth delivery of a consumer, counted from the newest.
func (s *diffSide) ack(cmd, consumer, rest string) string {
	n, body, _ := strings.Cut(rest, " ")
	s.mu.Lock()
	got := s.got[consumer]
	i, err := strconv.Atoi(n)
	if err != nil || i >= len(got) {
		s.mu.Unlock()
		return "" // the message did not come: on both sides, or it was noticed before
	}
	reply := got[len(got)-1-i].Reply
	s.mu.Unlock()
	if cmd == "ack" {
		return errText(s.nc.Publish(reply, []byte(body)))
	}
	return errText(s.nc.PublishRequest(reply, "ack", []byte(body)))
}

// check returns the whole state: every stream, every message, every consumer.
func (s *diffSide) check() string {
	var out strings.Builder
	for _, name := range s.streams() {
		info := s.api("STREAM.INFO."+name, `{"deleted_details":true,"subjects_filter":">"}`)
		out.WriteString(info + "\n")
		var v struct {
			State struct {
				FirstSeq uint64 `json:"first_seq"`
				LastSeq  uint64 `json:"last_seq"`
			}
		}
		if json.Unmarshal([]byte(info), &v) != nil {
			continue
		}
		for seq := v.State.FirstSeq; seq != 0 && seq <= v.State.LastSeq && seq < v.State.FirstSeq+200; seq++ {
			out.WriteString(s.api("STREAM.MSG.GET."+name, fmt.Sprintf(`{"seq":%d}`, seq)) + "\n")
		}
		out.WriteString(s.api("CONSUMER.NAMES."+name, "") + "\n")
		out.WriteString(s.api("CONSUMER.LIST."+name, "") + "\n")
	}
	return out.String()
}

// keyValue plays a call of nats.go's key-value client.
func (s *diffSide) keyValue(op string, arg []string) string {
	ctx, cancel := contextFor(5 * time.Second)
	defer cancel()
	at := func(i int) string {
		if i < len(arg) {
			return arg[i]
		}
		return ""
	}
	if op == "make" {
		history, _ := strconv.Atoi(at(1)) // no number: none
		_, err := s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: at(0), History: uint8(history), LimitMarkerTTL: time.Hour, //nolint:gosec // the script's
		})
		return errText(err)
	}
	kv, err := s.js.KeyValue(ctx, at(0))
	if err != nil {
		return errText(err)
	}
	key, value := at(1), at(2)
	rev, _ := strconv.ParseUint(at(3), 10, 64) // no number: none
	entry := func(e jetstream.KeyValueEntry, err error) string {
		if err != nil {
			return errText(err)
		}
		return fmt.Sprintf("%s=%q rev %d delta %d %v", e.Key(), e.Value(), e.Revision(), e.Delta(), e.Operation())
	}
	switch op {
	case "put":
		rev, err = kv.Put(ctx, key, []byte(value))
	case "create":
		rev, err = kv.Create(ctx, key, []byte(value))
	case "createttl":
		rev, err = kv.Create(ctx, key, []byte(value), jetstream.KeyTTL(time.Hour))
	case "update":
		rev, err = kv.Update(ctx, key, []byte(value), rev)
	case "delete":
		return errText(kv.Delete(ctx, key))
	case "deleterev":
		return errText(kv.Delete(ctx, key, jetstream.LastRevision(rev)))
	case "purge":
		return errText(kv.Purge(ctx, key))
	case "purgettl":
		return errText(kv.Purge(ctx, key, jetstream.PurgeTTL(time.Hour)))
	case "purgedeletes":
		return errText(kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1)))
	case "get":
		return entry(kv.Get(ctx, key))
	case "getrev":
		return entry(kv.GetRevision(ctx, key, rev))
	case "keys":
		keys, err := kv.Keys(ctx)
		return fmt.Sprint(keys, errText(err))
	case "history":
		h, err := kv.History(ctx, key)
		var out strings.Builder
		for _, e := range h {
			out.WriteString(entry(e, nil) + "; ")
		}
		return out.String() + errText(err)
	case "status":
		st, err := kv.Status(ctx)
		if err != nil {
			return errText(err)
		}
		return fmt.Sprint(st.Values(), st.History(), st.TTL(), st.Bytes())
	default:
		return "unknown operation " + op
	}
	return fmt.Sprint(rev, errText(err))
}

// newDiffSides starts both servers.
func newDiffSides(t *testing.T) [2]*diffSide {
	t.Helper()
	dir := t.TempDir()
	start := func() *server.Server { return startOracle(t, func(o *server.Options) { o.StoreDir = dir }) }
	oracle, gw := start(), startGateway(t, t.TempDir())
	return [2]*diffSide{{
		name: "nats-server",
		url:  func() string { return oracle.ClientURL() },
		stop: func() { oracle.Shutdown(); oracle.WaitForShutdown() }, start: func() { oracle = start() },
	}, {
		name: "gateway",
		url:  func() string { return gw.URL },
		stop: func() { gw.Kill() }, start: func() { gw = startGateway(t, gw.dir) },
	}}
}

// sortedKeys returns the names of all boxes of both.
func sortedKeys(a, b map[string][]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
