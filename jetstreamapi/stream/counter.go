package stream

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// count is the value of a counter. It is not changed once it is remembered.
type count struct {
	total   *big.Int
	sources []byte // JSON of the values that came from other streams; empty: none did
	broken  bool   // what says so cannot be read
}

// counters remembers the values of counters: those that the log does not show yet, because it cannot be asked for them,
// and others as long as they are few, so that it need not be. The stream's lock guards it.
type counters struct {
	bySubject map[string]counted
	bytes     int // of subjects and values
	most      int // of bytes, before something is forgotten
}

// counted is a counter's value after the message at seq.
type counted struct {
	count *count
	seq   uint64
}

// countersMost is what counters keeps, in bytes, besides what is on its way to the disk.
const countersMost = 4 << 20

// countedOverhead is what an entry takes besides its subject and value, roughly.
const countedOverhead = 160

func (c *count) size() int { return countedOverhead + c.total.BitLen()/8 + len(c.sources) }

// keep remembers the value of subject after the message at seq.
func (t *counters) keep(subject []byte, seq uint64, c *count, visible uint64) {
	if t.bySubject == nil {
		t.bySubject, t.most = make(map[string]counted), countersMost
	}
	if old, ok := t.bySubject[string(subject)]; ok {
		t.bytes -= old.count.size()
	} else {
		t.bytes += len(subject)
	}
	t.bytes += c.size()
	t.bySubject[string(subject)] = counted{count: c, seq: seq}
	if t.bytes <= t.most {
		return
	}
	for k, v := range t.bySubject {
		if v.seq <= visible {
			delete(t.bySubject, k)
			t.bytes -= len(k) + v.count.size()
		}
	}
	t.most = max(countersMost, 2*t.bytes)
}

// counter implements facts.
func (s *Stream) counter(subject []byte) (*count, *server.ApiError) {
	last := s.log.Key(subject).Last
	if last == 0 {
		return nil, nil
	}
	if c, ok := s.counters.bySubject[string(subject)]; ok && c.seq == last {
		return c.count, nil
	}
	r, err := s.log.Get(last)
	switch {
	case errors.Is(err, storage.ErrEOF): // what came after it was deleted, before it was on the disk
		return nil, server.NewJSStreamTooManyRequestsError()
	case err != nil:
		return nil, server.NewJSStreamStoreFailedError(err)
	}
	return storedCount(&r)
}

// storedCount reads a counter's message.
func storedCount(r *storage.Record) (*count, *server.ApiError) {
	var value server.CounterValue
	if err := json.Unmarshal(r.Data, &value); err != nil {
		return nil, server.NewJSMessageCounterBrokenError()
	}
	c := &count{total: new(big.Int)}
	if _, ok := c.total.SetString(value.Value, 10); !ok {
		c.total = new(big.Int) // as in nats-server, a message without a number counts for nothing
	}
	c.readSources(r.Header)
	return c, nil
}

// readSources takes the values of other streams from a message's header.
func (c *count) readSources(header []byte) {
	text := jsapi.HeaderValue(header, jsapi.HeaderCounterSources)
	if len(text) == 0 {
		return
	}
	var sources server.CounterSources
	err := json.Unmarshal(text, &sources)
	if err == nil && len(sources) > 0 {
		c.sources, err = json.Marshal(sources)
	}
	c.broken = err != nil
}

// loadCounts looks up the counters of a batch, so that this need not be done under the stream's lock.
func (s *Stream) loadCounts(set *settings, batch []bus.Delivery) {
	subjects := make([][]byte, len(batch))
	for i := range batch {
		subjects[i] = set.mapped(batch[i].Msg.Target())
	}
	s.lookUpCounts(subjects)
}

// loadCountsOf is loadCounts for copies.
func (s *Stream) loadCountsOf(batch []Copy, from *Lineage) {
	set := s.settings.Load()
	if !set.cfg.AllowMsgCounter {
		return
	}
	subjects := make([][]byte, len(batch))
	for i := range batch {
		subjects[i] = set.mapped(from.Map(batch[i].Subject))
	}
	s.lookUpCounts(subjects)
}

func (s *Stream) lookUpCounts(subjects [][]byte) {
	for _, subject := range s.unknownCounts(subjects) {
		r, err := s.log.Get(s.log.Key(subject).Last)
		if err != nil {
			continue // told of when it is asked for again
		}
		c, apiErr := storedCount(&r)
		if apiErr != nil {
			continue
		}
		s.mu.Lock()
		if _, ok := s.counters.bySubject[string(subject)]; !ok {
			s.counters.keep(subject, r.Seq, c, s.log.Visible())
		}
		s.mu.Unlock()
	}
}

// unknownCounts returns those subjects whose counters are not remembered.
func (s *Stream) unknownCounts(subjects [][]byte) (unknown [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subject := range subjects {
		if _, ok := s.counters.bySubject[string(subject)]; !ok && s.log.Key(subject).Last > 0 {
			unknown = append(unknown, subject)
		}
	}
	return unknown
}

// checkIncrement checks the header of an increment, and notes by how much it is.
func (c *settings) checkIncrement(in *incoming) *server.ApiError {
	h := &in.named
	if len(h.Incr) == 0 {
		return nil
	}
	by, ok := new(big.Int).SetString(string(h.Incr), 10)
	switch {
	case !ok:
		return server.NewJSMessageIncrInvalidError()
	case !c.cfg.AllowMsgCounter:
		return server.NewJSMessageIncrDisabledError()
	case len(in.data) > 0:
		return server.NewJSMessageIncrPayloadError()
	}
	for _, value := range [][]byte{
		h.Rollup, h.ExpectedStream, h.ExpectedLastMsgID, h.ExpectedLastSeq,
		h.ExpectedSubjectSeq, h.ExpectedSubjectSeqSubj,
	} {
		if len(value) > 0 {
			return server.NewJSMessageIncrInvalidError()
		}
	}
	in.count = &count{total: by}
	return nil
}

// countUp adds an increment to its counter, whose new value becomes the message's data.
func (c *settings) countUp(f facts, in *incoming) verdict {
	if in.count == nil {
		return refuse(server.NewJSMessageIncrMissingError())
	}
	before, err := f.counter(in.subject)
	if err != nil {
		return refuse(err)
	}
	if before != nil {
		if before.broken {
			return refuse(server.NewJSMessageCounterBrokenError())
		}
		in.count.total = new(big.Int).Add(before.total, in.count.total)
		if len(before.sources) > 0 {
			in.header = jsapi.SetHeader(in.header, jsapi.HeaderCounterSources, string(before.sources))
		}
	}
	in.count.readSources(in.header)
	in.data = append(in.count.total.Append([]byte(counterStart), 10), counterEnd...)
	in.changed = true
	return verdict{}
}

// countSourced adds what a counter of another stream has gained since it was last copied. Where each of those stands is
// kept in a header.
func (c *settings) countSourced(f facts, in *incoming) *server.ApiError {
	if len(in.named.Incr) == 0 {
		return server.NewJSMessageIncrMissingError()
	}
	if _, ok := new(big.Int).SetString(string(in.named.Incr), 10); !ok {
		return server.NewJSMessageIncrInvalidError()
	}
	before, apiErr := f.counter(in.subject)
	switch {
	case apiErr != nil:
		return apiErr
	case before == nil:
		before = &count{total: new(big.Int)}
	case before.broken:
		return server.NewJSMessageCounterBrokenError()
	}
	sources := make(server.CounterSources)
	if len(before.sources) > 0 {
		if err := json.Unmarshal(before.sources, &sources); err != nil {
			return server.NewJSMessageCounterBrokenError()
		}
	}
	gain, apiErr := sourcedGain(sources, in)
	if apiErr != nil {
		return apiErr
	}
	text, err := json.Marshal(sources)
	if err != nil {
		return server.NewJSMessageCounterBrokenError()
	}
	in.count = &count{total: new(big.Int).Add(before.total, gain), sources: text}
	in.header = jsapi.ReplaceHeader(in.header, jsapi.HeaderIncr, gain.String())
	in.header = jsapi.ReplaceHeader(in.header, jsapi.HeaderCounterSources, string(text))
	in.data = append(in.count.total.Append([]byte(counterStart), 10), counterEnd...)
	in.changed = true
	return nil
}

// sourcedGain returns by how much a sourced counter is above what sources, which it updates, has of it.
func sourcedGain(sources server.CounterSources, in *incoming) (*big.Int, *server.ApiError) {
	fields := strings.Split(string(in.named.StreamSource), " ")
	stream, subject := fields[0], string(in.subject)
	if len(fields) >= 5 {
		subject = fields[4]
	}
	var value server.CounterValue
	if err := json.Unmarshal(in.data, &value); err != nil {
		return nil, server.NewJSMessageCounterBrokenError()
	}
	now, was := new(big.Int), new(big.Int)
	if _, ok := now.SetString(value.Value, 10); !ok {
		now = new(big.Int)
	}
	if _, ok := was.SetString(sources[stream][subject], 10); !ok {
		was = new(big.Int)
	}
	if sources[stream] == nil {
		sources[stream] = make(map[string]string)
	}
	sources[stream][subject] = now.String()
	return now.Sub(now, was), nil
}

// What stands before and after the value in a counter's message.
const (
	counterStart = `{"val":"`
	counterEnd   = `"}`
)

// replyCount queues the PubAck of an increment.
func (s *Stream) replyCount(set *settings, in *incoming, seq uint64) {
	if len(in.reply) == 0 || set.cfg.NoAck {
		return
	}
	value := in.data[len(counterStart) : len(in.data)-len(counterEnd)]
	s.answers.push(answer{kind: answerCounter, wait: seq, seq: seq}, in.reply, nil, value)
}
