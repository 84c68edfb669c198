package source

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// errReplaced says that the origin is another stream than before, or none.
var errReplaced = errors.New("the origin was removed or made again")

// maxBatchBytes bounds a batch besides stream.MaxCopies.
const maxBatchBytes = 1 << 20

// local reads a stream of the same server from its log.
type local struct {
	link   *Link
	origin *stream.Stream
	log    *storage.Log
	first  uint64 // where reading started
	cursor *storage.Cursor
	batch  []stream.Copy
}

// openLocal opens a stream of the same account.
func (l *Link) openLocal(ctx context.Context) (*opened, error) {
	origin := l.o.Find(l.o.Source.Name)
	if origin == nil {
		return nil, server.NewJSStreamNotFoundError()
	}
	identity := stream.Identity(origin.Created())
	first, err := l.startIn(ctx, origin, identity)
	if err != nil {
		return nil, err
	}
	l.keeper.join(origin, first)
	log := origin.Log()
	r := &local{link: l, origin: origin, log: log, first: first, cursor: log.NewCursor(first, l.filters)}
	return &opened{reader: r, first: first, identity: identity}, nil
}

// Join makes a link that does not run yet known to a local origin that deletes messages which nobody needs any more, so
// that it keeps them for the link.
func (l *Link) Join(ctx context.Context) error {
	origin := l.o.Find(l.o.Source.Name)
	if l.o.Source.External != nil || origin == nil || origin.Config().Retention == server.LimitsPolicy {
		return nil
	}
	first, err := l.startIn(ctx, origin, stream.Identity(origin.Created()))
	if err == nil {
		l.keeper.join(origin, first)
	}
	return err
}

// startIn returns the first sequence to read.
func (l *Link) startIn(ctx context.Context, origin *stream.Stream, identity string) (first uint64, err error) {
	log := origin.Log()
	w, err := l.whereabouts(ctx, identity)
	if err != nil {
		return 0, err
	}
	st := log.VisibleState()
	switch {
	case w.seq > 0: // it may be one that the origin has yet to reach
		first = w.seq
	case !w.time.IsZero():
		first = min(log.SeqAtTime(jsapi.UnixNano(w.time)), st.LastSeq+1)
	}
	return max(first, st.FirstSeq), nil
}

// whereabouts is where in the origin to go on: at a sequence, at a time, or (both zero) at its first message.
type whereabouts struct {
	seq  uint64
	time time.Time
}

// whereabouts returns where to go on in an origin of this identity.
func (l *Link) whereabouts(ctx context.Context, identity string) (w whereabouts, err error) {
	src := l.o.Source
	st := l.o.Target.Log().State()
	if l.o.Mirror {
		switch {
		case st.LastSeq > 0:
			w.seq = st.LastSeq + 1
		case src.OptStartSeq > 0:
			w.seq = src.OptStartSeq
		case src.OptStartTime != nil:
			w.time = *src.OptStartTime
		}
		return w, nil
	}
	at, known, err := l.o.Target.Position(ctx, src)
	if err != nil {
		return w, err
	}
	again := known && at.Identity != "" && identity != "" && at.Identity != identity // another stream of that name
	if known && !again && at.Seq > 0 {
		w.seq = at.Seq + 1
		return w, nil
	}
	last := time.Time{} // of what the target has
	if st.LastTime > 0 {
		last = time.Unix(0, st.LastTime)
	}
	switch {
	case src.OptStartSeq > 0:
		w.seq = src.OptStartSeq
	case src.OptStartTime != nil:
		w.time = *src.OptStartTime
		if w.time.Before(last) {
			w.time = last
		}
	case st.FirstSeq > 1 && !again:
		w.time = last
	}
	return w, nil
}

func (r *local) next(ctx context.Context) ([]stream.Copy, error) {
	if r.link.o.Find(r.link.o.Source.Name) != r.origin {
		return nil, errReplaced
	}
	r.link.heard.Store(time.Now().UnixNano())
	r.batch = r.batch[:0]
	for size := 0; len(r.batch) < stream.MaxCopies && size < maxBatchBytes; {
		m, err := r.cursor.Next()
		if errors.Is(err, storage.ErrEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		r.batch = append(r.batch, stream.Copy{
			Seq: m.Seq, Time: m.Time, Subject: m.Key, Header: m.Header, Data: m.Data,
		})
		size += len(m.Key) + len(m.Header) + len(m.Data)
	}
	if len(r.batch) > 0 {
		return r.batch, nil
	}
	t := time.NewTimer(heartbeat)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.link.keeper.woken():
	case <-t.C:
	}
	return nil, nil
}

func (r *local) lag(seq uint64) uint64 { return r.log.Count(max(seq+1, r.first), r.link.filters) }

func (r *local) wantsStored() bool { return r.origin.Config().Retention != server.LimitsPolicy }

func (r *local) stored(batch []stream.Copy) {
	r.link.keeper.floor.Store(batch[len(batch)-1].Seq)
	for i := range batch {
		r.origin.Acked(&r.link.keeper, batch[i].Seq)
	}
}

func (r *local) close() {}
