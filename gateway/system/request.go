package system

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
)

// request is one request on its way to its answer. It owns its bytes.
type request struct {
	s              *Service
	subject, reply string
	header, body   []byte
}

// errSkip is a handler's way not to answer, so that another server may.
var errSkip = errors.New("not for this server")

// Handlers answer what follows $SYS.REQ.SERVER.{PING or id} and $SYS.REQ.ACCOUNT.{account} in a subject.
type (
	serverHandler  func(*request) (any, error)
	accountHandler func(r *request, account string) (any, error)
)

var serverRequests = map[string]serverHandler{
	"VARZ": asked(func(r *request, _ *server.VarzEventOptions) (any, error) { return r.s.o.Monitor.Varz(), nil }),
	"SUBSZ": asked(func(r *request, o *server.SubszEventOptions) (any, error) {
		return r.s.o.Monitor.Subsz(&o.SubszOptions)
	}),
	"CONNZ": asked(func(r *request, o *server.ConnzEventOptions) (any, error) {
		return r.s.o.Monitor.Connz(&o.ConnzOptions)
	}),
	"ROUTEZ": asked(func(r *request, _ *server.RoutezEventOptions) (any, error) {
		return r.s.o.Monitor.Routez(), nil
	}),
	"GATEWAYZ": asked(func(r *request, _ *server.GatewayzEventOptions) (any, error) {
		return r.s.o.Monitor.Gatewayz(), nil
	}),
	"LEAFZ": asked(func(r *request, _ *server.LeafzEventOptions) (any, error) { return r.s.o.Monitor.Leafz(), nil }),
	"ACCOUNTZ": asked(func(r *request, o *server.AccountzEventOptions) (any, error) {
		return r.s.o.Monitor.Accountz(o.Account)
	}),
	"JSZ": asked(func(r *request, o *server.JszEventOptions) (any, error) { return r.s.o.Monitor.Jsz(&o.JSzOptions) }),
	"HEALTHZ": asked(func(r *request, o *server.HealthzEventOptions) (any, error) {
		return r.s.o.Monitor.Healthz(&o.HealthzOptions), nil
	}),
	"EXPVARZ": asked(func(*request, *server.ExpvarzEventOptions) (any, error) { return expvarz(), nil }),
	"IPQUEUESZ": asked(func(*request, *server.IpqueueszEventOptions) (any, error) {
		return &server.IpqueueszStatus{}, nil
	}),
	"RAFTZ": asked(func(*request, *server.RaftzEventOptions) (any, error) { return &server.RaftzStatus{}, nil }),
}

var accountRequests = map[string]accountHandler{
	"SUBSZ": of(func(r *request, account string, o *server.SubszEventOptions) (any, error) {
		o.Account, o.Subscriptions = account, true
		return r.s.o.Monitor.Subsz(&o.SubszOptions)
	}),
	"CONNZ": of(func(r *request, account string, o *server.ConnzEventOptions) (any, error) {
		o.Account = account
		return r.s.o.Monitor.Connz(&o.ConnzOptions)
	}),
	"LEAFZ": of(func(r *request, _ string, _ *server.LeafzEventOptions) (any, error) {
		return r.s.o.Monitor.Leafz(), nil
	}),
	"JSZ": of(func(r *request, account string, o *server.JszEventOptions) (any, error) {
		return r.jszOf(account, &o.JSzOptions)
	}),
	"INFO": of(func(r *request, account string, _ *server.AccInfoEventOptions) (any, error) {
		z, err := r.s.o.Monitor.Accountz(account)
		if err != nil {
			return (*server.AccountInfo)(nil), err // shown as null
		}
		return z.Account, nil
	}),
	"STATZ": of(func(r *request, account string, o *server.AccountStatzEventOptions) (any, error) {
		if account != "PING" {
			o.Accounts = []string{account}
		}
		z := r.s.o.Monitor.AccountStatz(&o.AccountStatzOptions)
		if len(z.Accounts) == 0 && !o.IncludeUnused {
			return nil, errSkip
		}
		return z, nil
	}),
}

// asked is a handler that reads its options from the request, with the filter of servers among them.
func asked[O any](answer func(*request, *O) (any, error)) serverHandler {
	return func(r *request) (any, error) {
		o := new(O)
		if err := r.decode(o); err != nil {
			return nil, err
		}
		return answer(r, o)
	}
}

// of is asked for requests about an account.
func of[O any](answer func(*request, string, *O) (any, error)) accountHandler {
	return func(r *request, account string) (any, error) {
		o := new(O)
		if err := r.decode(o); err != nil {
			return nil, err
		}
		return answer(r, account, o)
	}
}

// badRequestError is an error of who asks.
type badRequestError struct{ error }

// decode reads the options in the body into o. errSkip: another server is meant.
func (r *request) decode(o any) error {
	if len(r.body) == 0 {
		return nil
	}
	var filter server.EventFilterOptions
	for _, to := range []any{o, &filter} {
		if err := json.Unmarshal(r.body, to); err != nil {
			return badRequestError{err}
		}
	}
	if !r.s.meant(&filter) {
		return errSkip
	}
	return nil
}

// meant reports whether a request is for this server.
func (s *Service) meant(f *server.EventFilterOptions) bool {
	me := s.o.Identity()
	same := strings.Contains
	if f.ExactMatch {
		same = func(a, b string) bool { return a == b }
	}
	for _, pair := range [][2]string{{me.Name, f.Name}, {me.Host, f.Host}, {me.Cluster, f.Cluster}} {
		if pair[1] != "" && !same(pair[0], pair[1]) {
			return false
		}
	}
	for _, t := range f.Tags {
		if !s.o.Gateway.ServerOptions().Tags.Contains(t) {
			return false
		}
	}
	return f.Domain == "" || f.Domain == me.Domain
}

// filters is what the service hears.
func (s *Service) filters() []string {
	id := s.id()
	out := []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.*.INFO", "$SYS.DEBUG.SUBSCRIBERS", "$SYS.REQ.ACCOUNT.NSUBS"}
	names := []string{"IDZ", "STATSZ", "PROFILEZ"}
	for name := range serverRequests {
		names = append(names, name)
	}
	for _, name := range names {
		out = append(out, "$SYS.REQ.SERVER.PING."+name, "$SYS.REQ.SERVER."+id+"."+name)
	}
	for _, name := range []string{"RELOAD", "KICK", "LDM"} {
		out = append(out, "$SYS.REQ.SERVER."+id+"."+name)
	}
	out = append(out, "$SYS.REQ.ACCOUNT.*.CONNS")
	for name := range accountRequests {
		out = append(out, "$SYS.REQ.ACCOUNT.*."+name)
	}
	return out
}

// serve answers the request.
func (r *request) serve() {
	what := token(r.subject, 4)
	switch token(r.subject, 2) {
	case "USER":
		info, err := r.userInfo()
		r.answerEncoded(info, err, "")
	case "ACCOUNT":
		r.serveAccount(token(r.subject, 3), what)
	case "SERVER":
		r.serveServer(what)
	default:
		r.countSubscribers()
	}
}

func (r *request) serveAccount(account, what string) {
	switch handler := accountRequests[what]; {
	case account == "NSUBS":
		r.countNamed()
	case what == "CONNS":
		r.connections(account)
	case handler != nil:
		r.answer(handler(r, account))
	}
}

func (r *request) serveServer(what string) {
	switch what {
	case "", "STATSZ":
		r.statsz()
	case "IDZ":
		me := r.s.o.Identity()
		r.send(&server.ServerID{Name: me.Name, Host: me.Host, ID: me.ID})
	case "PROFILEZ":
		r.profilez()
	case "RELOAD":
		r.answer(nil, r.s.o.Reload())
	case "KICK":
		r.answer(nil, r.kick())
	case "LDM":
		r.answer(nil, r.lameDuck())
	default:
		if handler := serverRequests[what]; handler != nil {
			r.answer(handler(r))
		}
	}
}

// answer sends what a handler returned, compressed if who asks takes that.
func (r *request) answer(data any, err error) {
	r.answerEncoded(data, err, headerOf(r.header, "Accept-Encoding"))
}

func (r *request) answerEncoded(data any, err error, accepted string) {
	if errors.Is(err, errSkip) || r.reply == "" {
		return
	}
	info := r.s.info()
	out := &server.ServerAPIResponse{Server: &info, Data: data}
	if err != nil {
		code := http.StatusInternalServerError
		if _, bad := errors.AsType[badRequestError](err); bad {
			code = http.StatusBadRequest
		}
		out.Error = &server.ApiError{Code: code, Description: err.Error()}
	}
	r.sendEncoded(out, accepted)
}

// send sends v as JSON.
func (r *request) send(v any) { r.sendEncoded(v, "") }

// sendEncoded sends v as JSON, compressed if what is accepted says so; empty: as it is and without a word about it.
func (r *request) sendEncoded(v any, accepted string) {
	if r.reply == "" {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		r.s.o.Logger.Error("an answer could not be encoded", slog.String("subject", r.subject), slog.Any("error", err))
		return
	}
	var header []byte
	if accepted != "" {
		var encoding string
		encoding, b = compressed(strings.ToLower(accepted), b)
		header = []byte("NATS/1.0\r\nContent-Encoding: " + encoding + "\r\n\r\n")
	}
	r.s.publish(r.reply, header, b)
}

// compressed returns b in an encoding among those accepted, and which one that is.
func compressed(accepted string, b []byte) (encoding string, out []byte) {
	var buf bytes.Buffer
	switch {
	case strings.Contains(accepted, "snappy"), strings.Contains(accepted, "s2"):
		w := s2.NewWriter(&buf, s2.WriterSnappyCompat())
		_, _ = w.Write(b) // a Buffer takes everything
		_ = w.Close()
		return "snappy", buf.Bytes()
	case strings.Contains(accepted, "gzip"):
		w := gzip.NewWriter(&buf)
		_, _ = w.Write(b)
		_ = w.Close()
		return "gzip", buf.Bytes()
	}
	return "identity", b
}

// headerOf returns the first value of a header, empty if there is none. Names are as they are written.
func headerOf(block []byte, name string) string {
	for line := range bytes.SplitSeq(block, []byte("\r\n")) {
		if key, value, ok := bytes.Cut(line, []byte(":")); ok && string(key) == name {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
