package source

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Options make a Link.
type Options struct {
	Account string
	Domain  string // of this server; empty: none
	Bus     bus.Bus
	// Upstreams are the other servers there are. May be nil.
	Upstreams *Upstreams
	Target    *stream.Stream
	Source    *server.StreamSource // what is copied; not changed
	Mirror    bool                 // it is the target's mirror, not one of its sources
	// Find returns the stream of the account that has this name and serves, nil if there is none.
	Find func(name string) *stream.Stream
	// CaughtUp is called once a mirror has nearly all of its origin. May be nil.
	CaughtUp func()
	Logger   *slog.Logger
}

// Link is one mirror or source at work.
type Link struct {
	o       Options
	index   string // of the source
	mapper  stream.Mapper
	filters []storage.Filter // none: all
	keeper  keeper

	cancel context.CancelFunc
	loop   sync.WaitGroup

	// The goroutine's.
	bus      *busWire // nil before it is needed
	caughtUp bool     // and it was told

	heard atomic.Int64 // when the origin last gave a sign of life, Unix nanoseconds

	mu       sync.Mutex
	reader   reader // nil: the origin is not open
	lag      uint64 // as it was when there was a reader
	identity string
	failure  *server.ApiError
}

// reader gives an origin's messages in order.
type reader interface {
	// next returns messages, at most stream.MaxCopies; none when there was none for a while. Their bytes stay valid.
	next(ctx context.Context) ([]stream.Copy, error)
	// lag returns how many messages come after seq. It may be called at any time.
	lag(seq uint64) uint64
	// stored tells that messages are durable in the target. If it returns true, it wants to be told.
	wantsStored() bool
	stored(batch []stream.Copy)
	close()
}

// opened is an origin that can be read.
type opened struct {
	reader   reader
	first    uint64 // the sequence reading starts at
	identity string // of the origin; empty if it is not known
}

// Pauses between two attempts; the last is for origins that are asked over a wire.
const (
	minRetry       = 50 * time.Millisecond
	maxRetry       = 2 * time.Second
	maxRemoteRetry = 15 * time.Second
)

// heartbeat is how often the origin is looked at when nothing comes.
const heartbeat = time.Second

// New makes a link. Nothing happens before Start.
func New(o Options) (*Link, error) {
	l := &Link{o: o, index: stream.IndexName(o.Source)}
	var err error
	if l.mapper, err = stream.NewMapper(o.Source.SubjectTransforms); err != nil {
		return nil, err
	}
	for _, f := range filtersOf(o.Source) {
		compiled, err := subjects.Compile(f)
		if err != nil {
			return nil, err
		}
		l.filters = append(l.filters, compiled)
	}
	l.keeper.filters = l.filters
	return l, nil
}

// filtersOf returns the subjects that are copied; none: all.
func filtersOf(s *server.StreamSource) (out []string) {
	if s.FilterSubject != "" {
		return []string{s.FilterSubject}
	}
	for _, t := range s.SubjectTransforms {
		if t.Source == "" {
			return nil
		}
		out = append(out, t.Source)
	}
	return out
}

// Start begins to copy, until ctx ends or Stop is called.
func (l *Link) Start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	l.cancel = cancel
	l.loop.Go(func() { l.run(ctx) })
}

// Stop ends the link and waits for that. What was added to the target stays.
func (l *Link) Stop() {
	if l.cancel != nil {
		l.cancel()
	}
	l.loop.Wait()
	l.keeper.leave()
}

// Forget is Stop for a link that does not come back: an origin that keeps messages for those who want them keeps none
// for it any more.
func (l *Link) Forget() {
	origin := l.keeper.attachedTo()
	l.Stop()
	if origin != nil {
		origin.DropUnneeded()
	}
}

// run opens the origin again and again.
func (l *Link) run(ctx context.Context) {
	defer func() {
		if l.bus != nil {
			l.bus.close()
		}
	}()
	longest := maxRetry
	if l.isRemote() {
		longest = maxRemoteRetry
	}
	delay := minRetry
	for ctx.Err() == nil {
		o, err := l.open(ctx)
		if err == nil {
			var moved bool
			if moved, err = l.follow(ctx, o); moved {
				delay = minRetry
			}
			l.setReader(nil, "")
			o.reader.close()
		}
		if ctx.Err() != nil || errors.Is(err, stream.ErrNotMirror) {
			return
		}
		if !errors.Is(err, errReplaced) {
			l.report(err)
		}
		pause(ctx, delay)
		delay = min(2*delay, longest)
	}
}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// isRemote reports whether the origin is read through a consumer.
func (l *Link) isRemote() bool { return l.o.Source.External != nil || l.o.Source.Consumer != nil }

// open opens the origin and, of a mirror, moves the target to where reading starts.
func (l *Link) open(ctx context.Context) (o *opened, err error) {
	if l.isRemote() {
		o, err = l.openAway(ctx)
	} else {
		o, err = l.openLocal(ctx)
	}
	if err != nil {
		return nil, err
	}
	if l.o.Mirror {
		if err := l.o.Target.StartAt(o.first); err != nil {
			o.reader.close()
			return nil, err
		}
	}
	l.heard.Store(time.Now().UnixNano())
	l.setReader(o.reader, o.identity)
	return o, nil
}

// openAway opens an origin that is read through a consumer: at an upstream, or else wherever the account's subjects
// lead.
func (l *Link) openAway(ctx context.Context) (*opened, error) {
	api := strings.TrimSuffix(jsapi.APIPrefix, ".")
	if e := l.o.Source.External; e != nil && e.ApiPrefix != "" {
		api = e.ApiPrefix
		w, prefix, err := l.o.Upstreams.wire(l.o.Account, api)
		if err != nil {
			return nil, err
		}
		if w != nil {
			return l.openRemote(ctx, w, prefix)
		}
	}
	if l.bus == nil {
		w, err := newBusWire(l.o.Bus, l.o.Account)
		if err != nil {
			return nil, err
		}
		l.bus = w
	}
	return l.openRemote(ctx, l.bus, api)
}

// follow copies until something fails. moved: some messages were copied.
func (l *Link) follow(ctx context.Context, o *opened) (moved bool, err error) {
	for {
		batch, err := o.reader.next(ctx)
		if err != nil {
			return moved, err
		}
		if err := l.deliver(ctx, o, batch); err != nil {
			return moved, err
		}
		moved = moved || len(batch) > 0
		if l.o.CaughtUp != nil && !l.caughtUp && o.reader.lag(l.copied()) < nearly {
			l.caughtUp = true
			l.o.CaughtUp()
		}
	}
}

// nearly is how many messages a mirror may be behind and still answer direct gets of its origin: one that is written to
// all the time is never quite up to date.
const nearly = 10

// deliver adds a batch to the target, and waits as long as it is not taken.
func (l *Link) deliver(ctx context.Context, o *opened, batch []stream.Copy) error {
	for delay := minRetry; ; delay = min(2*delay, maxRetry) {
		done, stall, err := l.add(batch)
		if done > 0 {
			if e := l.settle(ctx, o.reader, batch[:done]); e != nil {
				return e
			}
			delay = minRetry
		}
		batch = batch[done:]
		if stall != nil {
			select {
			case <-stall:
			case <-ctx.Done():
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			l.clear()
			return nil
		case !isRefusal(err):
			return err
		}
		l.report(err)
		pause(ctx, delay)
	}
}

// isRefusal reports whether the target may take the same message later.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[*server.ApiError](err); ok {
		return true
	}
	return errors.Is(err, storage.ErrFull)
}

func (l *Link) add(batch []stream.Copy) (done int, stall <-chan struct{}, err error) {
	if l.o.Mirror {
		return l.o.Target.AddMirrored(batch, l.mapper)
	}
	l.mu.Lock()
	from := &stream.Lineage{Index: l.index, Identity: l.identity, Map: l.mapper}
	l.mu.Unlock()
	return l.o.Target.AddSourced(batch, from)
}

// settle tells an origin that wants to know once a batch is durable.
func (l *Link) settle(ctx context.Context, r reader, batch []stream.Copy) error {
	if !r.wantsStored() {
		return nil
	}
	durable := make(chan error, 1)
	l.o.Target.Log().Sync(func(err error) { durable <- err })
	select {
	case err := <-durable:
		if err == nil {
			r.stored(batch)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Link) setReader(r reader, identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader != nil && r == nil {
		l.lag = l.reader.lag(l.copied())
	}
	l.reader, l.identity = r, identity
}

// copied returns the origin's sequence up to which the target has what it wants.
func (l *Link) copied() uint64 {
	if l.o.Mirror {
		return l.o.Target.Log().State().LastSeq
	}
	at, _ := l.o.Target.StoredPosition(l.o.Source)
	return at.Seq
}

// report shows why the link does not go on.
func (l *Link) report(err error) {
	shown, ok := errors.AsType[*server.ApiError](err)
	switch {
	case ok:
	case l.o.Mirror:
		shown = server.NewJSMirrorConsumerSetupFailedError(err)
	default:
		shown = server.NewJSSourceConsumerSetupFailedError(err)
	}
	l.mu.Lock()
	known := l.failure != nil && *l.failure == *shown
	l.failure = shown
	l.mu.Unlock()
	if !known {
		l.o.Logger.Warn("a stream cannot be copied from; it is tried again",
			slog.String("origin", l.o.Source.Name), slog.Bool("mirror", l.o.Mirror), slog.Any("error", err))
	}
}

func (l *Link) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = nil
}

// Info returns the link as StreamInfo shows it.
func (l *Link) Info() *server.StreamSourceInfo {
	src := l.o.Source
	info := &server.StreamSourceInfo{Name: src.Name, FilterSubject: src.FilterSubject, Active: -1}
	info.SubjectTransforms = append(info.SubjectTransforms, src.SubjectTransforms...)
	if src.External != nil {
		external := *src.External
		info.External = &external
	}
	if at := l.heard.Load(); at > 0 {
		info.Active = time.Since(time.Unix(0, at))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	info.Error = l.failure
	info.Lag = l.lag
	if l.reader != nil {
		info.Lag = l.reader.lag(l.copied())
	}
	if !l.o.Mirror {
		at, _ := l.o.Target.StoredPosition(src)
		if at.Identity == "" || l.identity == "" || at.Identity == l.identity {
			info.Seq = at.Seq
		}
	}
	return info
}
