package consumer

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// Start is where a new consumer begins.
type Start struct {
	Seq    uint64   // the first stream sequence it may deliver
	Skip   []uint64 // last_per_subject: what it delivers first
	Cursor uint64   // where its cursor begins: Seq, or after everything Skip stands for
}

// SelectStart finds where a new consumer begins, by the deliver policy of cfg. perSubject is the stream's
// max_msgs_per_subject. Everything is as of the visible position: what is not durable yet does not exist yet.
func SelectStart(l *storage.Log, cfg *server.ConsumerConfig, perSubject int64, filters []storage.Filter) Start {
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
		seq = l.SeqAtTime(jsapi.UnixNano(*cfg.OptStartTime))
	case server.DeliverLastPerSubject:
		if perSubject == 1 {
			break // every message is the last of its subject
		}
		skip, _ := l.LastPerKey(filters, visible, 0)
		if len(skip) == 0 {
			seq = visible // as nats-server; the messages before it are not asked for
			break
		}
		return Start{Seq: skip[0], Skip: skip, Cursor: visible + 1}
	}
	return begin(max(min(seq, visible+1), first, 1))
}

func begin(seq uint64) Start { return Start{Seq: seq, Cursor: seq} }

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
