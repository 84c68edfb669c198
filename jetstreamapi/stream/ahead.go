package stream

import (
	"bytes"
	"sync"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// ahead is what was looked up for the messages of a batch before the stream's lock was taken, so that no part is read
// under it.
type ahead struct {
	keys []storage.KeyAhead
	used int   // of keys
	at   []int // by message: its place in keys plus one; 0: nothing was looked up
}

var aheads = sync.Pool{New: func() any { return new(ahead) }} //nolint:gochecknoglobals // memory to use again

var expectsSubject = []byte(jsapi.HeaderExpectedSubjectSeq)

// lookAhead looks up the subjects of those messages whose admission asks for them; nil: of none.
func (s *Stream) lookAhead(set *settings, batch []bus.Delivery) *ahead {
	var a *ahead
	for i := range batch {
		m := &batch[i].Msg
		if set.maxPer == 0 && set.republish == nil && !bytes.Contains(m.Header, expectsSubject) {
			continue
		}
		if a == nil {
			a = aheads.Get().(*ahead) //nolint:forcetypeassert,errcheck // nothing else is in it
			a.at = append(a.at[:0], make([]int, len(batch))...)
		}
		a.lookUp(s.log, i, set.mapped(m.Target()))
	}
	return a
}

// lookUp looks up the subject of message i.
func (a *ahead) lookUp(log *storage.Log, i int, subject []byte) {
	if a.used == 0 || !bytes.Equal(a.keys[a.used-1].Key(), subject) {
		if a.used == len(a.keys) {
			a.keys = append(a.keys, storage.KeyAhead{})
		}
		log.LookAhead(subject, &a.keys[a.used])
		a.used++
	}
	a.at[i] = a.used
}

// of returns what was looked up for message i; nil: nothing.
func (a *ahead) of(i int) *storage.KeyAhead {
	if a == nil || a.at[i] == 0 {
		return nil
	}
	return &a.keys[a.at[i]-1]
}

// maxKeptAhead bounds what is kept to be used again.
const maxKeptAhead = 1024

func (a *ahead) release() {
	if a == nil || len(a.keys) > maxKeptAhead {
		return
	}
	for i := range a.keys[:a.used] {
		a.keys[i].Forget()
	}
	a.used = 0
	aheads.Put(a)
}
