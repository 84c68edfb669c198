package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
)

// The buckets on the servers, and their one key.
const (
	Bucket      = "EHDB_CUTOVER"
	ClaimBucket = "EHDB_AUTHORITY"
	key         = "gateway"
	idFile      = "gateway.id"
)

// Bounds of a lease.
const (
	// TTL is how long a lease lasts that nobody renews.
	TTL = 15 * time.Second

	every     = 4 * time.Second // it is renewed
	lookTime  = 4 * time.Second // one look may take
	aliveTime = time.Second     // a process that is alive answers within
	freshTime = 12 * time.Second
)

// Errors of a lease. The last three are about authority, and there is no going on with them.
var (
	// ErrSecond says that another gateway has the lease.
	ErrSecond = errors.New("another gateway has these streams under watch")
	// ErrElsewhere says that another gateway has the say about streams.
	ErrElsewhere = errors.New("another gateway has the say about streams")
	// ErrTwin says that another process with the same id has taken over.
	ErrTwin = errors.New("another process with this gateway's id has taken over: one of the two runs on a copy of " +
		"the other's store_dir")
	// ErrStale says that the store_dir is older than what this gateway has told the servers.
	ErrStale = errors.New("the store_dir is older than what this gateway has told the servers: it is a copy, or was " +
		"restored from a backup")
)

// Standing is which streams a gateway has the say about.
type Standing struct {
	Epoch   uint64
	Streams map[cutover.Scope]Stream
}

// Stream is how far a stream is.
type Stream struct {
	Created time.Time
	Last    uint64 // durable
}

// Options of a Lease.
type Options struct {
	Dir    string     // where the gateway's id is
	Conn   *nats.Conn // the account's that the buckets are in; nil: there is none, and no lease
	Server string     // the gateway's name
	// Standing is how the gateway's own journal stands.
	Standing func() Standing
	// Raise is told an epoch that there was already: the next one has to be a later one.
	Raise  func(epoch uint64)
	Logger *slog.Logger
}

// Lease is the gateway's part of it. Safe for concurrent use.
type Lease struct {
	o        Options
	id       string // the same after a restart
	instance string // of this process
	begin    time.Time
	kick     chan struct{}
	turn     chan struct{} // held by a look

	mu sync.Mutex
	// The following are guarded by mu.
	at      time.Time // when it was last looked at
	other   string    // who has it, if it is another
	held    bool      // this process has had it
	checked bool      // the claim was compared with the store_dir
	intents map[cutover.Scope]int
	fresh   freshness
	alive   *nats.Subscription // what others ask whether this process is alive
}

// holder is the lease.
type holder struct {
	ID       string    `json:"id"`
	Instance string    `json:"instance,omitempty"`
	Server   string    `json:"server"`
	Since    time.Time `json:"since"`
}

// New reads the gateway's id, or makes one.
func New(o Options) (*Lease, error) {
	l := &Lease{
		o: o, instance: random(), begin: time.Now(), kick: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		intents: make(map[cutover.Scope]int),
	}
	l.fresh.init()
	name := filepath.Join(o.Dir, idFile)
	b, err := os.ReadFile(name) //nolint:gosec // the operator's own directory
	if l.id = strings.TrimSpace(string(b)); err == nil && l.id != "" {
		return l, nil
	}
	l.id = random()
	return l, cutover.WriteFile(name, []byte(l.id+"\n"))
}

func random() string {
	raw := make([]byte, 16) //nolint:mnd // as long as a UUID
	_, _ = rand.Read(raw)   // it does not fail
	return hex.EncodeToString(raw)
}

// Hold takes the lease at a start. Servers that cannot be reached do not keep the gateway from serving what it has.
func (l *Lease) Hold(ctx context.Context) (err error) {
	l.answer(ctx) // before it can be seen who has it: whoever starts in the same moment asks
	defer func() {
		if err != nil {
			l.silence()
		}
	}()
	for end := time.Now().Add(TTL + every); ; {
		err := l.look(ctx)
		if !errors.Is(err, ErrSecond) {
			if err != nil && !fatal(err) {
				l.o.Logger.Warn("The lease on the servers could not be taken yet: {error}", slog.Any("error", err))
				return nil
			}
			return err
		}
		if time.Now().After(end) {
			return err
		}
		l.o.Logger.Warn("Waiting for the lease: {error}", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// fatal tells errors that a gateway must end for.
func fatal(err error) bool {
	return errors.Is(err, ErrElsewhere) || errors.Is(err, ErrTwin) || errors.Is(err, ErrStale)
}

// Keep renews the lease and the claim until ctx ends. An error is that there is no going on: another has the say.
func (l *Lease) Keep(ctx context.Context) error {
	if l.o.Conn == nil {
		return nil
	}
	defer l.silence()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-l.kick:
		}
		err := l.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case fatal(err):
			l.fresh.end.Store(1) // long ago: nothing passes any more
			return err
		case err != nil:
			l.o.Logger.Warn("The lease on the servers was not renewed: {error}", slog.Any("error", err))
		}
	}
}

// Leave tells the servers how the streams stand at the end.
func (l *Lease) Leave(ctx context.Context) {
	if err := l.look(ctx); err != nil {
		l.o.Logger.Debug("The servers were not told of the end: {error}", slog.Any("error", err))
	}
}

// Release gives the lease back, so that another gateway need not wait until it has run out. given is false if another
// has it.
func (l *Lease) Release(ctx context.Context) (given bool, err error) {
	if l.o.Conn == nil {
		return false, nil
	}
	js, err := jetstream.New(l.o.Conn)
	if err != nil {
		return false, err
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return false, err
	}
	e, err := kv.Get(ctx, key)
	if err != nil {
		return false, err
	}
	var h holder
	if err := json.Unmarshal(e.Value(), &h); err != nil || h.ID != l.id || h.Instance != l.instance {
		return false, err
	}
	err = kv.Delete(ctx, key, jetstream.LastRevision(e.Revision()))
	return err == nil, err
}

// Kick has it looked at once: the journal stands otherwise.
func (l *Lease) Kick() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// look renews the lease and the claim, once.
func (l *Lease) look(ctx context.Context) (err error) {
	if l.o.Conn == nil {
		return nil
	}
	if !l.o.Conn.IsConnected() { // the client's own word for it is about a buffer
		l.fresh.prolong(time.Now().Add(freshTime))
		return errors.Join(nats.ErrDisconnected, l.o.Conn.LastError())
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	since := time.Now()
	defer func() {
		if !fatal(err) { // one that could not be made says nothing against who has the say
			l.fresh.until(since.Add(freshTime))
		}
	}()
	js, err := jetstream.New(l.o.Conn)
	if err != nil {
		return err
	}
	claims, err := bucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: ClaimBucket, Description: "which ehdb-gateway has the say about which streams",
	})
	if err != nil {
		return err
	}
	c, err := l.claimed(ctx, claims)
	if err != nil {
		return err
	}
	leases, err := bucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: Bucket, TTL: TTL, Description: "which ehdb-gateway moves streams",
	})
	if err != nil {
		return err
	}
	if err := l.renew(ctx, leases); err != nil {
		if errors.Is(err, ErrSecond) && c.ID != l.id && len(l.standing().Streams) > 0 {
			err = errors.Join(ErrElsewhere, err) // somebody has removed the claim, and another gateway has begun
		}
		return err
	}
	return l.claim(ctx, claims, c)
}

// bucket returns a bucket, which is made if it is not there.
func bucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, cfg.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	const most = 3
	for cfg.Replicas = most; cfg.Replicas > 0; cfg.Replicas -= 2 { // as many as the servers have
		if kv, err = js.CreateKeyValue(ctx, cfg); err == nil || ctx.Err() != nil {
			break
		}
	}
	return kv, err
}

// renew takes or renews the lease. Where another was quicker, it is looked who that is.
func (l *Lease) renew(ctx context.Context, kv jetstream.KeyValue) error {
	err := l.renewOnce(ctx, kv)
	if errors.Is(err, jetstream.ErrKeyExists) {
		err = l.renewOnce(ctx, kv)
	}
	return err
}

func (l *Lease) renewOnce(ctx context.Context, kv jetstream.KeyValue) error {
	doc, err := json.Marshal(holder{ID: l.id, Instance: l.instance, Server: l.o.Server, Since: l.begin.UTC()})
	if err != nil {
		return err
	}
	e, err := kv.Get(ctx, key)
	var h holder
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		_, err = kv.Create(ctx, key, doc)
	case err != nil:
	case json.Unmarshal(e.Value(), &h) == nil && l.another(ctx, &h):
		return l.second(&h)
	default:
		_, err = kv.Update(ctx, key, doc, e.Revision())
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.other, l.held = time.Now(), "", true
	return nil
}

// second is the error about another holder.
func (l *Lease) second(h *holder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.other = time.Now(), h.Server
	if h.ID == l.id && l.held {
		return ErrTwin
	}
	what := ""
	if h.ID == l.id {
		what = ", which has this gateway's id: a copy of its store_dir, or the process before this one, still running"
	}
	return fmt.Errorf("%w: %s%s (the key %s of the bucket %s on the servers)", ErrSecond, h.Server, what, key, Bucket)
}

// another reports whether a holder is another process that may be alive. One with this gateway's id is the process
// before this one, as a rule, and gone.
func (l *Lease) another(ctx context.Context, h *holder) bool {
	switch {
	case h.ID != l.id:
		return true
	case h.Instance == "" || h.Instance == l.instance:
		return false
	}
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTime)
	defer cancel()
	_, err := l.o.Conn.RequestWithContext(ctx, alive(h.Instance), nil)
	return !errors.Is(err, nats.ErrNoResponders)
}

// alive is the subject on which a process says that it is alive. Its connection ends with it, so nobody listens there
// then.
func alive(instance string) string { return "_EHDB.alive." + instance }

// answer says that this process is alive, until silence.
func (l *Lease) answer(ctx context.Context) {
	if l.o.Conn == nil {
		return
	}
	sub, err := l.o.Conn.Subscribe(alive(l.instance), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		l.o.Logger.Warn("Nobody can ask whether this process is alive: {error}", slog.Any("error", err))
		return
	}
	l.mu.Lock()
	l.alive = sub
	l.mu.Unlock()
	if l.o.Conn.IsConnected() {
		ctx, cancel := context.WithTimeout(ctx, aliveTime)
		defer cancel()
		_ = l.o.Conn.FlushWithContext(ctx) // servers that do not answer cannot be asked about it either
	}
}

func (l *Lease) silence() {
	l.mu.Lock()
	sub := l.alive
	l.alive = nil
	l.mu.Unlock()
	if sub != nil {
		_ = sub.Unsubscribe()
	}
}

// Seen is who has the lease, as it was last looked at: other is empty if this gateway has it. A zero time: it was not
// looked at yet.
func (l *Lease) Seen() (id, other string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id, l.other, l.at
}
