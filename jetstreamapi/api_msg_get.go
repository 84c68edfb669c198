package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// serveMsgGet answers STREAM.MSG.GET.<name>: one message as JSON. Answers do not count as API calls, errors do.
func serveMsgGet(r *request, out *publisher) {
	var resp jsapi.MsgGetResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiMsgGetResponseType)
	if !r.admitted(out) {
		return
	}
	if r.bodyEmpty() {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	var req jsapi.MsgGetRequest
	if !r.decode(out, &req) {
		return
	}
	if badMsgGet(&req) {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	e, apiErr := r.acc.stream(r.token(3))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	rec, err := getOne(e.log, &req)
	if err != nil {
		e.logUnreadable(err)
		r.fail(out, server.NewJSNoMessageFoundError())
		return
	}
	resp.Message = &server.StoredMsg{
		Subject: string(rec.Key), Sequence: rec.Seq, Data: rec.Data, Time: rec.TimeUTC(),
	}
	if !req.NoHeaders && len(rec.Header) > 0 {
		resp.Message.Header = rec.Header
	}
	r.send(out, nil)
}

// badMsgGet reports whether the request names no message or contradicts itself, or wants more than one message.
func badMsgGet(req *jsapi.MsgGetRequest) bool {
	byTime := req.StartTime != nil
	switch {
	case req.Batch > 0, req.MaxBytes > 0:
		return true
	case req.Seq > 0 && (req.LastFor != "" || byTime):
		return true
	case req.LastFor != "" && (byTime || req.NextFor != ""):
		return true
	}
	return req.Seq == 0 && req.LastFor == "" && req.NextFor == "" && !byTime
}

// getOne reads the message a request names.
func getOne(log *storage.Log, req *jsapi.MsgGetRequest) (storage.Record, error) {
	seq := req.Seq
	if req.StartTime != nil {
		seq = log.SeqAtTime(jsapi.UnixNano(*req.StartTime))
	}
	switch {
	case req.NextFor != "":
		f, err := subjects.Compile(req.NextFor)
		if err != nil {
			return storage.Record{}, err
		}
		return log.Next(seq, f)
	case seq > 0:
		return log.Get(seq)
	}
	f, err := subjects.Compile(req.LastFor)
	if err != nil {
		return storage.Record{}, err
	}
	return log.Last(f, 0)
}
