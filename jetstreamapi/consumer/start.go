package consumer

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// start is where a new consumer begins.
type start struct {
	seq    uint64   // the first stream sequence it may deliver
	skip   []uint64 // last_per_subject: what it delivers first
	cursor uint64   // where its cursor begins: seq, or after everything skip stands for
}

// selectStart finds where a new consumer begins. Everything is as of the visible position: what is not durable yet does
// not exist yet.
func selectStart(l *storage.Log, cfg *server.ConsumerConfig, perSubject int64, filters []storage.Filter) start {
	state := l.VisibleState()
	first, visible := state.FirstSeq, state.LastSeq
	seq := first
	switch cfg.DeliverPolicy {
	case server.DeliverAll:
	case server.DeliverLast:
		seq = lastMatching(l, filters, visible)
	case server.DeliverNew:
		seq = visible + 1
	case server.DeliverByStartSequence:
		return begin(max(cfg.OptStartSeq, first))
	case server.DeliverByStartTime:
		seq = l.SeqAtTime(cfg.OptStartTime.UnixNano())
	case server.DeliverLastPerSubject:
		if perSubject == 1 {
			break // every message is the last of its subject
		}
		skip, _ := l.LastPerKey(filters, visible, 0)
		if len(skip) == 0 {
			seq = visible // as nats-server; the messages before it are not asked for
			break
		}
		return start{seq: skip[0], skip: skip, cursor: visible + 1}
	}
	return begin(max(min(seq, visible+1), first, 1))
}

func begin(seq uint64) start { return start{seq: seq, cursor: seq} }

// lastMatching returns the sequence of the newest message that matches; 0 if there is none.
func lastMatching(l *storage.Log, filters []storage.Filter, visible uint64) (seq uint64) {
	if len(filters) == 0 {
		return visible
	}
	for _, f := range filters {
		if rec, err := l.Last(f, visible); err == nil {
			seq = max(seq, rec.Seq)
		}
	}
	return seq
}
