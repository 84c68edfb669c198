package stream

import (
	"github.com/nats-io/nats-server/v2/server"
)

// Bounds of the queue of answers. Past the first, publishers are asked to pause; past the second, a message that
// wants an answer is dropped, for there is no room to keep even a refusal. Publishers that pause when asked never get
// there.
const (
	answersStall    = 1 << 16
	answersMax      = 1 << 18
	answersMaxBytes = 64 << 20
)

type answerKind uint8

const (
	answerAck       answerKind = iota + 1 // a PubAck for seq
	answerCounter                         // likewise, with the counter's value as its data
	answerDuplicate                       // the PubAck of a message stored before at seq
	answerError                           // err
	answerBusy                            // 429
	answerRepublish                       // a stored message, sent on under another subject
	answerBatch                           // the PubAck of a batch that ends at seq; its data is the end of it
	answerText                            // its data is all of it
)

// answer is one publish that waits until the log is visible up to wait. Its texts are in the queue's arena.
type answer struct {
	wait   uint64
	seq    uint64
	err    *server.ApiError
	reply  uint32 // length of the subject it goes to
	header uint32 // lengths of what is republished, or of the value of a counter
	data   uint32
	kind   answerKind
}

func (a *answer) texts() int { return int(a.reply) + int(a.header) + int(a.data) }

// answerQueue holds answers in order, without an allocation for each. The stream's lock guards it.
type answerQueue struct {
	list  []answer
	first int    // of the answers not yet taken
	text  []byte // their texts, one after the other
	start int    // of the texts not yet taken

	failed error         // set: what is not visible now never will be
	room   chan struct{} // not nil: somebody waits until the queue has drained
}

func (q *answerQueue) len() int { return len(q.list) - q.first }

// full reports whether no answer can be taken.
func (q *answerQueue) full() bool {
	return q.len() >= answersMax || len(q.text)-q.start >= answersMaxBytes
}

// push adds an answer with its texts.
func (q *answerQueue) push(a answer, reply, header, data []byte) {
	a.reply, a.header, a.data = uint32(len(reply)), uint32(len(header)), uint32(len(data)) //nolint:gosec // bounded
	q.list = append(q.list, a)
	q.text = append(append(append(q.text, reply...), header...), data...)
}

// ready reports whether an answer is due.
func (q *answerQueue) ready(visible uint64) bool {
	return q.len() > 0 && (q.failed != nil || q.list[q.first].wait <= visible)
}

// take moves answers that are due, at most most of them, behind list and text.
func (q *answerQueue) take(visible uint64, most int, list []answer, text []byte) ([]answer, []byte) {
	size := 0
	from := q.first
	for q.first < len(q.list) && q.first-from < most {
		a := q.list[q.first]
		if a.wait > visible {
			if q.failed == nil {
				break
			}
			a = a.fail(q.failed)
		}
		size += a.texts()
		list = append(list, a)
		q.first++
	}
	text = append(text, q.text[q.start:q.start+size]...)
	q.start += size
	q.compact()
	if q.room != nil && q.len() < answersStall/2 {
		close(q.room)
		q.room = nil
	}
	return list, text
}

// fail turns an answer that waits in vain into a refusal. A republish is dropped: the message may be lost.
func (a answer) fail(cause error) answer {
	if a.kind == answerRepublish {
		a.kind = answerNone
		return a
	}
	switch a.kind {
	case answerAck, answerCounter, answerDuplicate, answerBatch, answerText:
		a.err = server.NewJSStreamStoreFailedError(cause)
		a.kind = answerError
	case answerError, answerBusy, answerRepublish, answerNone:
	}
	return a
}

// answerNone is sent to nobody.
const answerNone answerKind = 0

// compact drops what was taken once it is the larger part, so that its cost is spread over the answers.
func (q *answerQueue) compact() {
	if q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
		q.text, q.start = q.text[:0], 0
		return
	}
	if q.first > len(q.list)/2 {
		q.list = q.list[:copy(q.list, q.list[q.first:])]
		q.first = 0
	}
	if q.start > len(q.text)/2 {
		q.text = q.text[:copy(q.text, q.text[q.start:])]
		q.start = 0
	}
}

// stall returns nil, or a channel that is closed when the queue has drained.
func (q *answerQueue) stall() <-chan struct{} {
	if q.len() < answersStall {
		return nil
	}
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room
}
