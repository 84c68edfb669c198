package relay

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// While no server upstream can be reached, clients are served from here alone: what this gateway has the say about, and
// what no stream stores. All else is refused with the reason: nothing of it may be taken, since the servers have it and
// do not know.

// Serves implements gateway.Director.
func (r *Relay) Serves(name string) bool {
	t := r.table.Load()
	if name != "" {
		a := t.accounts[name]
		return a != nil && a.whole
	}
	for _, a := range t.accounts {
		if a.whole {
			return true
		}
	}
	return false
}

// Alone implements gateway.Guide.
func (g *guide) Alone(subject, reply []byte) (*gateway.Refusal, <-chan struct{}) {
	g.sending = sending{}
	t := g.relay.table.Load()
	a := g.up.of(t, g.traveler)
	if a == nil {
		a = new(account)
	}
	if bytes.HasPrefix(subject, jsPrefix) {
		return g.aloneJetStream(t, a, subject, reply)
	}
	r := a.storing(subject)
	if r == nil {
		return nil, nil
	}
	if r.State == Here && len(reply) > 0 && r.Scope.observed.Load() {
		g.sending = sending{kindHere, r}
	}
	return r.alone(t, func(e *server.ApiError) ([]byte, []byte) {
		return nil, jsapi.AppendPubError(nil, r.Scope.Name.Stream, e)
	})
}

// answer makes an answer of an error.
type answer func(e *server.ApiError) (header, data []byte)

// alone decides about what concerns a stream.
func (r *Route) alone(t *Table, a answer) (*gateway.Refusal, <-chan struct{}) {
	switch {
	case r.State.held():
		return nil, t.next
	case r.State == Here:
		return nil, nil
	}
	return refusal(fmt.Sprintf("stream %s is served by the NATS servers", r.Scope.Name.Stream), a), nil
}

// refusal says that what was asked for is not served from here.
func refusal(what string, a answer) *gateway.Refusal {
	e := *server.NewJSClusterNotAvailError()
	e.Description += ": " + what + ", and none can be reached"
	header, data := a(&e)
	return &gateway.Refusal{Why: what + ", and none can be reached", Header: header, Data: data}
}

// statusAnswer is an answer where messages are waited for: a status without any.
func statusAnswer(e *server.ApiError) (header, data []byte) {
	return jsapi.AppendStatus(nil, e.Code, e.Description), nil
}

// apiAnswer is an answer of the API.
func apiAnswer(e *server.ApiError) (header, data []byte) {
	b, err := json.Marshal(jsapi.Response{Type: "io.nats.jetstream.api.v1.error_response", Error: e})
	if err != nil { // strings and numbers always marshal
		panic("relay: " + err.Error())
	}
	return nil, b
}

// aloneJetStream decides about requests, acks and answers of flow control.
func (g *guide) aloneJetStream(t *Table, a *account, subject, reply []byte) (*gateway.Refusal, <-chan struct{}) {
	stream, how, k := []byte(nil), answer(apiAnswer), kindNone
	if ack, ok := jsapi.ParseAckSubject(subject); ok {
		stream, how, k = ack.Stream, statusAnswer, kindAckHere
	} else if s, _, _, ok := jsapi.ParseFlowControlSubject(subject); ok {
		stream, how = s, statusAnswer
	} else if verb, s, _ := apiStream(subject); verb != nil {
		stream = s
		switch string(verb) {
		case "CONSUMER.MSG.NEXT.":
			how, k = statusAnswer, kindPullHere
		case "DIRECT.GET.", "DIRECT.GET.LAST.":
			how = statusAnswer
		}
		if r := a.ofStream(stream); r != nil && r.State == Here && changing(verb) && r.Scope.Changed != nil {
			r.Scope.Changed()
		}
	} else if g.upWhole(a, subject) == gateway.CourseLocal {
		return nil, nil // is answered from both sides, or with the reason why it is not
	}
	r := a.ofStream(stream)
	if r == nil {
		return refusal("what this gateway has not taken over is served by the NATS servers", how), nil
	}
	if r.State == Here && (k == kindAckHere || k == kindPullHere && len(reply) > 0) {
		g.sending = sending{k, r}
	}
	return r.alone(t, how)
}
