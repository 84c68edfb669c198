package jetstreamapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// request is one API request on its way to its answer. It owns its bytes.
type request struct {
	svc     *Service
	acc     *account
	from    bus.Identity
	subject string   // in its $JS.API form
	tokens  []string // of the subject, without $JS and API
	reply   string
	header  []byte
	body    []byte

	resp any             // the answer
	head *jsapi.Response // the part of resp with type and error
}

// logger returns the log with what the request is.
func (r *request) logger() *slog.Logger {
	return r.svc.log.With(slog.String("account", r.acc.name), slog.String("subject", r.subject))
}

// begin sets what the request will be answered with.
func (r *request) begin(resp any, head *jsapi.Response, typ string) {
	head.Type = typ
	r.resp, r.head = resp, head
}

// token returns token i after $JS.API, or "".
func (r *request) token(i int) string {
	if i >= len(r.tokens) {
		return ""
	}
	return r.tokens[i]
}

// admitted checks the API level the client needs and that its account has JetStream; if not, the request is answered
// and false returned.
func (r *request) admitted(out *publisher) bool {
	switch {
	case jsapi.APILevelTooHigh(r.header):
		r.fail(out, server.NewJSRequiredApiLevelError())
	case r.acc.outsider:
		r.fail(out, server.NewJSNotEnabledForAccountError())
	default:
		return true
	}
	return false
}

// decode reads the body into v. If it cannot be read the request is answered and false returned.
func (r *request) decode(out *publisher, v any) bool {
	err := decodeStrict(r.body, v)
	if err != nil && r.svc.opts.Lax {
		err = json.Unmarshal(r.body, v)
	}
	if err == nil {
		return true
	}
	r.fail(out, server.NewJSInvalidJSONError(err))
	return false
}

// decodeOptional is decode for bodies that may be absent: anything that is not JSON of some shape is ignored, as
// nats-server does.
func (r *request) decodeOptional(out *publisher, v any) bool {
	b := bytes.TrimLeft(r.body, " \t\r\n")
	if len(b) == 0 || (b[0] != '{' && b[0] != '[') {
		return true
	}
	return r.decode(out, v)
}

// decodeStrict reads all JSON values in body into v and refuses unknown fields. An empty body leaves v as it is.
func decodeStrict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	for {
		err := d.Decode(v)
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			err = fmt.Errorf("%w at offset %d", err, syntax.Offset)
		}
		return err
	}
}

// bodyEmpty reports whether the body is empty or an empty JSON object.
func (r *request) bodyEmpty() bool {
	if len(r.body) == 0 {
		return true
	}
	var v map[string]json.RawMessage
	return json.Unmarshal(r.body, &v) == nil && v != nil && len(v) == 0
}

// fail answers with an error.
func (r *request) fail(out *publisher, e *jsapi.Error) {
	r.head.Error = e
	r.done(out)
}

// failUncounted is fail for a refusal that nats-server does not count among the API's errors.
func (r *request) failUncounted(out *publisher, e *jsapi.Error) {
	r.head.Error = e
	b := r.send(out, nil)
	r.acc.countAPI(0)
	r.audit(b)
}

// done answers with resp.
func (r *request) done(out *publisher) { r.answer(out, nil) }

// answer answers with resp, under a header block.
func (r *request) answer(out *publisher, header []byte) {
	b := r.send(out, header)
	errs := uint64(0)
	if r.head.Error != nil {
		errs = 1
	}
	r.acc.countAPI(errs)
	r.audit(b)
}

// send publishes resp and returns its bytes.
func (r *request) send(out *publisher, header []byte) []byte {
	b, err := json.Marshal(r.resp)
	if err != nil {
		r.logger().Error("an API answer could not be encoded", slog.Any("error", err))
		return nil
	}
	out.send(r.reply, header, b)
	return b
}

// later runs f with a publisher on the account's answering worker. It may be called from anywhere and does not block.
func (r *request) later(f func(out *publisher)) { r.acc.answers.pushAlways(f) }

// apiTokens splits what follows $JS.API.
func apiTokens(subject string) []string {
	return strings.Split(strings.TrimPrefix(subject, jsapi.APIPrefix), ".")
}
