package jetstreamapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Bounds of the entries of a backup that are no messages, in bytes. A consumer's state grows with what it has
// outstanding: about 70 bytes for each message.
const (
	mostState    = 1 << 20
	mostConsumer = 256 << 20
)

// mostSeq leaves room for what a stream gets after it was restored.
const mostSeq = math.MaxInt64

var errTarSnapshot = errors.New("this is a snapshot in the tar form of nats-server before 2.15, " +
	"which is not read here; restore it into a nats-server 2.15 and take the backup from that")

// loader makes a stream's log and its consumers' states from a backup.
type loader struct {
	ctx context.Context //nolint:containedctx // one loader is one restore
	acc *account
	req *jsapi.StreamCreateRequest

	in        *archive.Reader
	state     server.StreamState // as the backup tells it
	store     *storage.Store
	e         *streamEntry // not in the account before adopt
	log       *storage.Log
	consumers []*loadedConsumer
	held      int64 // bytes taken from the account's limits
	stored    int64 // bytes of messages
	last      uint64
	body      []byte // scratch
	adopted   bool
}

// load reads the backup to its end; everything in it is then durable.
func (l *loader) load(r io.Reader) error {
	l.in = archive.NewReader(s2.NewReader(r))
	if err := l.loadState(); err != nil {
		return err
	}
	if err := l.prepare(); err != nil {
		return err
	}
	for range l.state.Consumers {
		if err := l.loadConsumer(); err != nil {
			return err
		}
	}
	if err := l.loadMessages(); err != nil {
		return err
	}
	if err := l.passTail(); err != nil {
		return err
	}
	return awaitDurable(l.ctx, l.log)
}

// next is the next entry; the end of the backup is an error here.
func (l *loader) next(want string) (*archive.Entry, error) {
	e, err := l.in.Next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("expected %s, found the end of the backup", want)
	}
	return e, err
}

// decode reads the entry's body into v.
func (l *loader) decode(v any, most int64) (err error) {
	if l.body, err = l.in.Body(l.body[:0], most); err != nil {
		return err
	}
	return json.Unmarshal(l.body, v)
}

func (l *loader) loadState() error {
	e, err := l.next(archive.StateName)
	if f, ok := errors.AsType[*archive.FormatError](err); ok && string(f.Start) == "meta.inf" {
		return errTarSnapshot
	}
	if err != nil {
		return err
	}
	if string(e.Name) != archive.StateName {
		return errors.New("expected state.json first")
	}
	if err := l.decode(&l.state, mostState); err != nil {
		return fmt.Errorf("error in state.json: %w", err)
	}
	return checkState(&l.state)
}

// checkState refuses a state that no stream can be in.
func checkState(s *server.StreamState) error {
	count := errors.New("invalid stream state: inconsistent message count or sequence range")
	switch {
	case s.Consumers < 0:
		return errors.New("invalid stream state: negative consumer count")
	case s.LastSeq > mostSeq:
		return fmt.Errorf("invalid stream state: sequence %d is too high", s.LastSeq)
	case s.FirstSeq == 0 && (s.LastSeq != 0 || s.Msgs != 0):
		return count
	case s.FirstSeq > s.LastSeq && s.FirstSeq != 0 && (s.FirstSeq-1 != s.LastSeq || s.Msgs != 0):
		return count
	case s.FirstSeq <= s.LastSeq && s.FirstSeq != 0 && s.Msgs > s.LastSeq-s.FirstSeq+1:
		return errors.New("invalid stream state: message count exceeds sequence range")
	}
	return nil
}

// prepare makes the log.
func (l *loader) prepare() error {
	cfg := &l.req.StreamConfig
	if l.state.Bytes > math.MaxInt64 {
		return l.exceeded()
	}
	if err := l.hold(int64(l.state.Bytes)); err != nil { //nolint:gosec // bounded above
		return err
	}
	l.e = &streamEntry{
		acc: l.acc, name: cfg.Name, created: time.Now().UTC(), memory: cfg.Storage == server.MemoryStorage,
		consumers: make(map[string]*consumerEntry), recovering: true,
	}
	l.e.cfg.Store(cfg)
	if l.store = l.e.store(); l.store == nil {
		return storage.ErrStopped
	}
	l.e.shards = l.acc.svc.place(l.acc.name, cfg.Name, cfg.Subjects, l.store.Shards())
	spec := l.e.spec()
	if l.state.FirstSeq > 0 {
		spec.FirstSeq = l.state.FirstSeq
	}
	log, err := l.store.CreateLog(spec)
	if err != nil {
		return err
	}
	l.log, l.e.logID = log, log.ID()
	l.last = log.State().LastSeq
	return nil
}

// hold takes n bytes from the account's limits.
func (l *loader) hold(n int64) error {
	if l.acc.reserve(l.req.Storage, n) != nil {
		return l.exceeded()
	}
	l.held += n
	return nil
}

func (l *loader) exceeded() error {
	if l.req.Storage == server.MemoryStorage {
		return server.NewJSMemoryResourcesExceededError()
	}
	return server.NewJSStorageResourcesExceededError()
}

// unhold gives back what was taken from the account's limits.
func (l *loader) unhold() {
	l.acc.addUsed(l.req.Storage, -l.held)
	l.held = 0
}

func (l *loader) loadMessages() error {
	for {
		e, err := l.in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.checkMessage(e); err != nil {
			return err
		}
		if l.body, err = l.in.Body(l.body[:0], l.acc.svc.maxPayload.Load()); err != nil {
			return fmt.Errorf("failed to read message sequence %d: %w", e.Seq, err)
		}
		l.last = e.Seq
		m := storage.Record{Seq: e.Seq, Time: e.Time, Key: e.Name, Header: l.body[:e.Header], Data: l.body[e.Header:]}
		if err := l.keep(&m); err != nil {
			return err
		}
	}
}

// checkMessage checks what can be told before a message was read.
func (l *loader) checkMessage(e *archive.Entry) error {
	size := e.Header + e.Data
	switch mms := int64(l.req.MaxMsgSize); {
	case e.Seq == 0:
		return errors.New("expected message sequence")
	case e.Seq > mostSeq:
		return fmt.Errorf("message sequence %d is too high", e.Seq)
	case e.Seq <= l.last:
		return fmt.Errorf("message sequence %d out of order", e.Seq)
	case size > l.acc.svc.maxPayload.Load():
		return fmt.Errorf("message sequence %d exceeds maximum payload size", e.Seq)
	case mms >= 0 && size > mms:
		return fmt.Errorf("message sequence %d exceeds maximum message size", e.Seq)
	case !subjects.ValidLiteral(e.Name):
		return fmt.Errorf("message sequence %d has no valid subject", e.Seq)
	case e.Time < 0:
		return fmt.Errorf("message sequence %d is from before 1970", e.Seq)
	}
	return nil
}

// keep appends a message, unless its time is over.
func (l *loader) keep(m *storage.Record) error {
	if len(m.Header) > 0 && !isHeader(m.Header) {
		return fmt.Errorf("message sequence %d has a header block that is none", m.Seq)
	}
	expired, err := stream.Expired(m.Header, m.Time, time.Now().UnixNano())
	if err != nil {
		return fmt.Errorf("failed to parse message TTL: %w", err)
	}
	if expired {
		return nil
	}
	size := l.e.spec().Size(len(m.Key), len(m.Header), len(m.Data))
	l.stored += int64(size) //nolint:gosec // lengths
	if l.stored > l.held {
		if err := l.hold(l.stored - l.held); err != nil {
			return err
		}
	}
	if err := l.append(m); err != nil {
		return fmt.Errorf("failed to store message sequence %d: %w", m.Seq, err)
	}
	return nil
}

// isHeader reports whether b is delimited as a header block is.
func isHeader(b []byte) bool {
	return bytes.HasPrefix(b, []byte("NATS/1.0")) && bytes.HasSuffix(b, []byte("\r\n\r\n"))
}

// fullRetry is the pause before a record is offered again to a full shard that does not say when it has room.
const fullRetry = 2 * time.Millisecond

// append appends to the log, no faster than the store takes it.
func (l *loader) append(m *storage.Record) error {
	for {
		if stall := l.store.Stall(); stall != nil {
			select {
			case <-stall:
			case <-l.ctx.Done():
			}
		}
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		err := l.log.Append(m, nil)
		if !errors.Is(err, storage.ErrFull) {
			return err
		}
		select {
		case <-time.After(fullRetry):
		case <-l.ctx.Done():
		}
	}
}

// passTail moves the log's end to the backup's last sequence, whose message may have been deleted: what is published
// next must not get a sequence a second time. What has to be there for that goes again.
func (l *loader) passTail() error {
	if l.log.State().LastSeq >= l.state.LastSeq {
		return nil
	}
	at := max(l.state.LastTime.UnixNano(), 0)
	if err := l.append(&storage.Record{Seq: l.state.LastSeq, Time: at, Key: []byte("deleted")}); err != nil {
		return err
	}
	_, err := l.log.Delete([]uint64{l.state.LastSeq}, false, nil)
	return err
}

// abandon removes what was made, unless it was adopted.
func (l *loader) abandon() {
	if l.adopted {
		return
	}
	l.adopted = true // nothing is left to remove
	l.unhold()
	var errs []error
	for _, c := range l.consumers {
		errs = append(errs, c.entry.dropState())
	}
	if l.log != nil {
		errs = append(errs, l.e.dropLog())
	}
	if err := errors.Join(errs...); err != nil {
		l.e.logger().Warn("what is left of a failed restore is removed at the next start", slog.Any("error", err))
	}
}
