package stream

import (
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/subjects"
)

// sendOn queues the copy of a stored message that the republish setting asks for. It is sent once the message is
// durable. before is the previous sequence of the same subject, which lets a subscriber see gaps.
func (s *Stream) sendOn(set *settings, in *incoming, seq, before uint64, now int64) {
	to, err := set.republish.Match(string(in.subject))
	if err != nil || !subjects.ValidPublish(to) {
		return // the mapping does not apply
	}
	header := []byte("NATS/1.0\r\n")
	if len(in.header) > 0 {
		header = append([]byte(nil), in.header[:len(in.header)-len("\r\n")]...)
	}
	header = fmt.Appendf(header,
		"Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\nNats-Last-Sequence: %d\r\n",
		set.cfg.Name, in.subject, seq, time.Unix(0, now).UTC().Format(time.RFC3339Nano), before)
	data := in.data
	if set.cfg.RePublish.HeadersOnly {
		header = fmt.Appendf(header, "Nats-Msg-Size: %d\r\n", len(data))
		data = nil
	}
	header = append(header, "\r\n"...)
	if s.answers.full() {
		s.metrics.unanswered.Add(1)
		return
	}
	s.answers.push(answer{kind: answerRepublish, wait: seq, seq: seq}, []byte(to), header, data)
}
