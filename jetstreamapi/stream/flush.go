package stream

import (
	"sync"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// flushBatch is the number of answers sent with one Flush.
const flushBatch = 512

// flusher sends answers from a goroutine that lives only while there are some that are due, so that neither a publisher
// nor the log's ack loop ever waits for a receiver.
type flusher struct {
	output bus.Session // used by the goroutine alone

	mu      sync.Mutex
	running bool
	closed  bool // no goroutine starts any more
	over    bool // nor runs
	done    sync.WaitGroup
	stop    chan struct{} // made by start; closed by close, ends the wait for a slow receiver
	late    sync.Mutex    // held by close and flushLate while they are the goroutine

	// Scratch of the goroutine.
	msg  bus.Msg
	list []answer
	text []byte
	body []byte
}

// use sets where answers go. Upkeep may run already.
func (f *flusher) use(output bus.Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.output = output
}

// kick makes sure that answers which are due get sent.
func (s *Stream) kick() {
	if s.flusher.start() {
		go s.flush()
	}
}

// start reports whether the caller has to run flush.
func (f *flusher) start() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running || f.closed || f.output == nil {
		return false
	}
	if f.stop == nil {
		f.stop = make(chan struct{})
	}
	f.running = true
	f.done.Add(1)
	return true
}

// end is called when the goroutine ends. It must look once more for answers after that.
func (f *flusher) end() {
	f.mu.Lock()
	f.running = false
	f.mu.Unlock()
	f.done.Done()
}

// close waits for the goroutine, after it has sent all that is due.
func (f *flusher) close(s *Stream) {
	f.mu.Lock()
	f.closed = true
	if f.stop == nil {
		f.stop = make(chan struct{})
	}
	close(f.stop)
	f.mu.Unlock()
	f.done.Wait()
	f.late.Lock()
	defer f.late.Unlock()
	f.mu.Lock()
	f.over = true // before the last look: an answer that comes after it is flushLate's
	f.mu.Unlock()
	if f.output == nil {
		return
	}
	for s.flushSome() { // what a kick came too late for
	}
	f.output.Close()
	f.output = nil
}

// ended reports whether close has waited for the goroutine.
func (f *flusher) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// flushLate answers whose message was on its way when the stream stopped: they found it before its session closed.
func (s *Stream) flushLate() {
	f := &s.flusher
	f.late.Lock()
	defer f.late.Unlock()
	output, err := s.o.Bus.Open(bus.KindService, bus.Identity{Account: s.o.Account}, nil)
	if err != nil {
		return // the bus is closed: nobody is left
	}
	f.use(output)
	for s.flushSome() {
	}
	output.Close()
	f.use(nil)
}

func (s *Stream) flush() {
	for s.flushSome() {
	}
	s.flusher.end()
	// An answer may have become due, and its kick seen the goroutine running, since the last look.
	s.mu.Lock()
	ready := s.answers.ready(s.log.Visible())
	s.mu.Unlock()
	if ready {
		s.kick()
	}
}

// flushSome sends one batch of answers and reports whether there was one.
func (s *Stream) flushSome() bool {
	f := &s.flusher
	s.mu.Lock()
	f.list, f.text = s.answers.take(s.log.Visible(), flushBatch, f.list[:0], f.text[:0])
	s.mu.Unlock()
	if len(f.list) == 0 {
		return false
	}
	set := s.settings.Load()
	f.body = f.body[:0]
	text := f.text
	for i := range f.list {
		a := &f.list[i]
		m := &f.msg
		m.Subject = text[:a.reply]
		if a.kind == answerRepublish {
			m.Header, m.Data = text[a.reply:a.reply+a.header], text[a.reply+a.header:a.texts()]
		} else {
			m.Header, m.Data = f.render(set, a, text[a.reply+a.header:a.texts()])
		}
		text = text[a.texts():]
		if a.kind != answerNone {
			f.output.Publish(m)
		}
	}
	if stall := f.output.Flush(); stall != nil {
		select {
		case <-stall:
		case <-f.stop:
		}
	}
	return true
}

// render writes an answer behind the bodies of its batch. value is the data that came with it.
func (f *flusher) render(set *settings, a *answer, value []byte) (header, data []byte) {
	from := len(f.body)
	switch a.kind {
	case answerAck:
		f.body = jsapi.AppendPubAck(f.body, set.ack, a.seq)
	case answerCounter:
		f.body = jsapi.AppendCounterAck(f.body, set.ack, a.seq, value)
	case answerDuplicate:
		f.body = jsapi.AppendDuplicateAck(f.body, set.ack, a.seq)
	case answerBusy:
		header = []byte(jsapi.TooManyRequests)
		f.body = jsapi.AppendPubError(f.body, set.cfg.Name, a.err)
	case answerError:
		f.body = jsapi.AppendPubError(f.body, set.cfg.Name, a.err)
	case answerBatch:
		f.body = jsapi.AppendBatchAck(f.body, set.ack, a.seq, value)
	case answerText:
		return nil, value
	case answerNone, answerRepublish:
	}
	return header, f.body[from:]
}
