package jetstreamapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// directGet is one request on DIRECT.GET.<stream>[.<subject>]: messages go to the reply as they are, with where they
// come from in headers; what cannot be had is a status.
type directGet struct {
	e     *streamEntry
	r     *request
	out   *publisher
	req   jsapi.MsgGetRequest
	batch bool // several messages, ended by a 204

	sent    int    // bytes
	pending uint64 // messages that follow
	last    uint64 // sequence of the message sent before, 0 at first
}

// maxMultiLast bounds the answers to one multi_last request.
const maxMultiLast = 1024

const directTokens = 3 // DIRECT GET <stream>

// serveDirectGet serves a direct get.
func serveDirectGet(e *streamEntry, r *request, out *publisher) {
	d := &directGet{e: e, r: r, out: out}
	if jsapi.APILevelTooHigh(r.header) {
		d.status("412 Required Api Level")
		return
	}
	if why := d.parse(); why != "" {
		d.status(why)
		return
	}
	switch {
	case len(d.req.MultiLastFor) > 0:
		d.multi()
	case d.req.Batch != 0:
		d.many()
	default:
		d.one()
	}
}

// parse reads the request and returns the status that refuses it, "" if it is good.
func (d *directGet) parse() string {
	bySubject := len(d.r.tokens) > directTokens
	if len(d.r.body) > 0 {
		if err := json.Unmarshal(d.r.body, &d.req); err != nil {
			return "408 Malformed Request"
		}
	} else if !bySubject {
		return "408 Empty Request"
	}
	q := &d.req
	if bySubject {
		if q.LastFor != "" || q.NextFor != "" || len(q.MultiLastFor) > 0 || q.Seq != 0 || q.Batch != 0 ||
			q.StartTime != nil || q.UpToSeq != 0 || q.UpToTime != nil {
			return "408 Bad Request"
		}
		q.LastFor = strings.Join(d.r.tokens[directTokens:], ".")
		return ""
	}
	if q.Seq == 0 && q.LastFor == "" && q.NextFor == "" && len(q.MultiLastFor) == 0 && q.StartTime == nil {
		return "408 Empty Request"
	}
	if contradicts(q) {
		return "408 Bad Request"
	}
	return ""
}

func contradicts(q *jsapi.MsgGetRequest) bool {
	byTime, multi := q.StartTime != nil, len(q.MultiLastFor) > 0
	switch {
	case q.Seq > 0 && (q.LastFor != "" || byTime),
		q.LastFor != "" && (byTime || q.NextFor != "" || q.Batch > 0 || multi),
		q.NextFor != "" && multi,
		q.UpToSeq > 0 && q.UpToTime != nil:
		return true
	}
	return false
}

func (d *directGet) status(text string) {
	d.out.send(d.r.reply, []byte("NATS/1.0 "+text+"\r\n\r\n"), nil)
}

func (d *directGet) notFound() { d.status("404 Message Not Found") }

func (d *directGet) one() {
	rec, err := getOne(d.e.log, &d.req)
	if err != nil {
		d.e.logUnreadable(err)
		d.notFound()
		return
	}
	d.sendRecord(&rec)
}

// many serves a batch: consecutive messages from a sequence or time, of a filter.
func (d *directGet) many() {
	log, q := d.e.log, &d.req
	d.batch = true
	var filter storage.Filter
	var filters []storage.Filter
	if q.NextFor != "" {
		f, err := subjects.Compile(q.NextFor)
		if err != nil {
			d.notFound()
			return
		}
		filter, filters = f, []storage.Filter{f}
	}
	seq := q.Seq
	if q.StartTime != nil {
		seq = log.SeqAtTime(jsapi.UnixNano(*q.StartTime))
	}
	d.pending = log.Count(seq, filters)
	for i := range max(q.Batch, 0) { // a negative batch is an empty one
		rec, err := log.Next(seq, filter)
		if err != nil {
			if i == 0 {
				d.notFound()
				return
			}
			break
		}
		seq = rec.Seq + 1
		d.pending -= min(1, d.pending)
		d.sendRecord(&rec)
		if d.full() {
			break
		}
	}
	d.status(fmt.Sprintf("204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d", d.pending, d.last))
}

// multi serves the newest message of each subject that matches.
func (d *directGet) multi() {
	log, q := d.e.log, &d.req
	d.batch = true
	upTo, ok := d.upTo()
	if !ok {
		d.status("404 No Results")
		return
	}
	texts := slices.DeleteFunc(q.MultiLastFor, func(s string) bool { return !subjects.ValidFilter(s) }) // match nothing
	filters, err := consumer.CompileFilters(texts)
	if err != nil {
		d.status("400 Bad Request")
		return
	}
	var seqs []uint64
	var more bool
	if len(filters) > 0 {
		seqs, more = log.LastPerKey(filters, upTo, maxMultiLast)
	}
	if more {
		d.status("413 Too Many Results")
		return
	}
	if len(seqs) == 0 {
		d.status("404 No Results")
		return
	}
	for len(seqs) > 0 && seqs[0] < q.Seq { // with none left the answer is an empty batch
		seqs = seqs[1:]
	}
	if !d.sendAll(seqs) {
		d.notFound()
		return
	}
	d.status(fmt.Sprintf("204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\nNats-UpTo-Sequence: %d",
		d.pending, d.last, upTo))
}

// upTo returns the last sequence a multi_last request may see; false if that is before the first message.
func (d *directGet) upTo() (uint64, bool) {
	log, q := d.e.log, &d.req
	if q.UpToTime != nil {
		seq := log.SeqAtTime(jsapi.UnixNano(*q.UpToTime))
		return seq - 1, seq > log.State().FirstSeq
	}
	if q.UpToSeq > 0 {
		return q.UpToSeq, true
	}
	return log.Visible(), true
}

// sendAll sends the records at seqs; false if one could not be read.
func (d *directGet) sendAll(seqs []uint64) bool {
	d.pending = uint64(len(seqs))
	for i, seq := range seqs {
		rec, err := d.e.log.Get(seq)
		if err != nil {
			return false
		}
		d.pending--
		d.sendRecord(&rec)
		if d.full() || (d.req.Batch > 0 && i+1 >= d.req.Batch) {
			break
		}
	}
	return true
}

// full reports whether the request's bound in bytes is reached.
func (d *directGet) full() bool {
	bound := int64(d.req.MaxBytes)
	if bound == 0 {
		bound = d.e.acc.svc.opts.MaxPending
	}
	return int64(d.sent) >= bound
}

// sendRecord sends one message.
func (d *directGet) sendRecord(rec *storage.Record) {
	var h []byte
	if !d.req.NoHeaders || len(d.req.MultiLastFor) > 0 {
		h = d.header(rec)
	}
	d.last = rec.Seq
	d.sent += len(rec.Key) + len(rec.Header) + len(rec.Data)
	d.out.send(d.r.reply, h, rec.Data)
	if d.sent >= flushBytes {
		d.out.flush() // a large batch need not wait in memory
	}
}

const flushBytes = 256 << 10

// header returns the message's headers with where it comes from.
func (d *directGet) header(rec *storage.Record) []byte {
	const room = 200
	h := make([]byte, 0, len(rec.Header)+len(rec.Key)+len(d.e.name)+room)
	if len(rec.Header) >= 2 {
		h = append(h, rec.Header[:len(rec.Header)-2]...)
	} else {
		h = append(h, "NATS/1.0\r\n"...)
	}
	h = appendHeader(h, server.JSStream, d.e.name)
	h = appendHeader(h, server.JSSubject, string(rec.Key))
	h = appendHeader(h, server.JSSequence, strconv.FormatUint(rec.Seq, 10))
	h = appendHeader(h, server.JSTimeStamp, rec.TimeUTC().Format(time.RFC3339Nano))
	if d.batch {
		h = appendHeader(h, server.JSNumPending, strconv.FormatUint(d.pending, 10))
		h = appendHeader(h, server.JSLastSequence, strconv.FormatUint(d.last, 10))
	}
	return append(h, "\r\n"...)
}

func appendHeader(h []byte, name, value string) []byte {
	h = append(h, name...)
	h = append(h, ": "...)
	h = append(h, value...)
	return append(h, "\r\n"...)
}
