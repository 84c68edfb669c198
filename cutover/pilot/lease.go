package pilot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// The lease keeps a second gateway from moving the same streams: a key on the servers that the gateway renews. A
// gateway that starts again has the id of the one before it, which is in its journal's folder, and goes on at once. One
// that stops gives the lease back, unless a stream is served from what only it has.
const (
	leaseBucket = "EHDB_CUTOVER"
	leaseKey    = "gateway"
	leaseTTL    = 15 * time.Second
	leaseEvery  = 4 * time.Second
	releaseTime = 2 * time.Second
	idFile      = "gateway.id"
)

// lease is the state of it.
type lease struct {
	id string

	mu sync.Mutex
	// The following are guarded by mu.
	at    time.Time // when it was last looked at
	other string    // who has it, if it is another
}

// holder is the value of the key.
type holder struct {
	ID     string    `json:"id"`
	Server string    `json:"server"`
	Since  time.Time `json:"since"`
}

// ErrSecond says that another gateway moves these streams.
var ErrSecond = errors.New("another gateway has these streams under watch")

// newLease reads the gateway's id, or makes one.
func newLease(dir string) (*lease, error) {
	name := filepath.Join(dir, idFile)
	b, err := os.ReadFile(name) //nolint:gosec // the operator's own directory
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return &lease{id: id}, nil
	}
	raw := make([]byte, 16) //nolint:mnd // as long as a UUID
	if _, err := rand.Read(raw); err != nil {
		return nil, err
	}
	id := hex.EncodeToString(raw)
	return &lease{id: id}, os.WriteFile(name, []byte(id+"\n"), 0o600)
}

// leaseJS is JetStream of the account that has the lease; nil: the gateway has no login.
func (p *Pilot) leaseJS() (jetstream.JetStream, error) {
	accounts := slices.Sorted(maps.Keys(p.o.Conns))
	if len(accounts) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	return jetstream.New(p.o.Conns[accounts[0]].NATS())
}

// take takes or renews the lease: ErrSecond if another gateway has it.
func (p *Pilot) take(ctx context.Context) error {
	js, err := p.leaseJS()
	if js == nil || err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, leaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: leaseBucket, TTL: leaseTTL, Description: "which ehdb-gateway moves streams",
		})
	}
	if err != nil {
		return err
	}
	return p.renew(ctx, kv)
}

func (p *Pilot) renew(ctx context.Context, kv jetstream.KeyValue) error {
	l := p.lease
	doc, err := json.Marshal(holder{ID: l.id, Server: p.o.Server, Since: p.start.UTC()})
	if err != nil {
		return err
	}
	other := ""
	e, err := kv.Get(ctx, leaseKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		_, err = kv.Create(ctx, leaseKey, doc)
	case err == nil:
		var h holder
		if json.Unmarshal(e.Value(), &h) == nil && h.ID != l.id {
			other = h.Server
			break
		}
		_, err = kv.Update(ctx, leaseKey, doc, e.Revision())
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.at, l.other = time.Now(), other
	l.mu.Unlock()
	if other != "" {
		return fmt.Errorf("%w: %s (the key %s of the bucket %s on the servers)",
			ErrSecond, other, leaseKey, leaseBucket)
	}
	return nil
}

// GiveBack gives the lease back, so that another gateway need not wait until it has run out. It is to be called behind
// Close, when no client is connected any more. Nothing is given back while a stream or a consumer is served from here:
// another gateway would begin beside what only this one has.
func (p *Pilot) GiveBack(ctx context.Context) {
	if !p.engine.AtRest() {
		p.o.Logger.Info("The lease on the servers is kept: streams are served from what this gateway has stored")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	switch given, err := p.release(ctx); {
	case err != nil:
		p.o.Logger.Info("The lease on the servers could not be given back, and runs out in {ttl}: {error}",
			slog.Duration("ttl", leaseTTL), slog.Any("error", err))
	case given:
		p.o.Logger.Info("The lease on the servers is given back")
	}
}

// release deletes the key, if it is this gateway's.
func (p *Pilot) release(ctx context.Context) (given bool, err error) {
	js, err := p.leaseJS()
	if js == nil || err != nil {
		return false, err
	}
	kv, err := js.KeyValue(ctx, leaseBucket)
	if err != nil {
		return false, err
	}
	e, err := kv.Get(ctx, leaseKey)
	if err != nil {
		return false, err
	}
	var h holder
	if err := json.Unmarshal(e.Value(), &h); err != nil || h.ID != p.lease.id {
		return false, err
	}
	err = kv.Delete(ctx, leaseKey, jetstream.LastRevision(e.Revision()))
	return err == nil, err
}

// hold takes the lease at a start. Servers that cannot be reached do not keep the gateway from serving what it has.
func (p *Pilot) hold(ctx context.Context) error {
	for end := time.Now().Add(leaseTTL + leaseEvery); ; {
		try, cancel := context.WithTimeout(ctx, leaseEvery)
		err := p.take(try)
		cancel()
		if !errors.Is(err, ErrSecond) {
			if err != nil {
				p.o.Logger.Warn("The lease on the servers could not be taken yet: {error}", slog.Any("error", err))
			}
			return nil
		}
		if time.Now().After(end) {
			return err
		}
		p.o.Logger.Warn("Waiting for the lease: {error}", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(leaseEvery):
		}
	}
}

// keep renews the lease.
func (p *Pilot) keep(ctx context.Context) {
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		try, cancel := context.WithTimeout(ctx, leaseEvery)
		err := p.take(try)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.o.Logger.Warn("The lease on the servers was not renewed: {error}", slog.Any("error", err))
		}
	}
}

// leaseFact is how many gateways take part.
func (p *Pilot) leaseFact(c *collector) {
	l := p.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() {
		return
	}
	f := gate.Fact{Value: 1, N: 1, At: l.at, Source: "lease", Detail: l.id}
	if l.other != "" {
		f.Value, f.Detail = 2, l.other //nolint:mnd // the other one
	}
	c.facts[gate.Gateways] = f
}
