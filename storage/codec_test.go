package storage

import (
	"bytes"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

func FuzzDecode(f *testing.F) {
	f.Add(appendMessage(nil, kindMessage, 7, &Record{Seq: 3, Time: 9, Key: []byte("a.b"), Header: []byte("h"), Data: []byte("data")}))
	f.Add(appendDelete(nil, 5, flagErase, []seqRun{{3, 4}, {9, 1}}))
	f.Add(appendTruncate(nil, 5, 99))
	f.Add(appendDrop(nil, 5))
	f.Add(appendState(nil, kindChange, 5, []byte("state")))
	f.Add(appendLog(nil, &logMeta{ID: 4, State: true, Name: "n", Shards: []ShardID{1, 2}, LastSeq: 8, LastTime: -1}))
	f.Add(appendStore(nil, 8, []uint64{1, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b}
		var r decoded
		for d.pos < len(b) && d.next(&r) == nil {
			again := encode(&r)
			e := decoder{b: again}
			var back decoded
			if err := e.next(&back); err != nil || e.pos != len(again) {
				t.Fatalf("%+v encodes to %x, which does not decode: %v", r, again, err)
			}
			if !bytes.Equal(encode(&back), again) {
				t.Fatalf("%+v comes back as %+v", r, back)
			}
		}
	})
}

// encode writes r as the writer would.
func encode(r *decoded) []byte {
	switch r.kind {
	case kindMessage, kindMoved:
		return appendMessage(nil, r.kind, r.log, &r.rec)
	case kindDelete:
		return appendDelete(nil, r.log, r.flags, r.runs)
	case kindTruncate:
		return appendTruncate(nil, r.log, r.below)
	case kindLog:
		return appendLog(nil, &r.meta)
	case kindDrop:
		return appendDrop(nil, r.log)
	case kindChange, kindCheckpoint:
		return appendState(nil, r.kind, r.log, r.state)
	case kindStore:
		return appendStore(nil, r.log, r.heads)
	}
	return nil
}

// FuzzBlock opens arbitrary blocks: an error or not, but no panic and nothing unbounded.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{1, 1, 0, 1, 0, 3, 0, 5, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newStore(Options{Shards: 2})
		s.begin(newWriter(s.opts, nil))
		r := newReplayer(s)
		for range 2 {
			if r.block(1, tail.Pos{}, b) != nil {
				return
			}
		}
		if r.finish() == nil {
			for _, l := range s.logs {
				if got := l.State(); got != l.VisibleState() {
					t.Fatalf("head %+v, visible %+v", got, l.VisibleState())
				}
			}
		}
	})
}
