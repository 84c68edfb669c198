package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// mover moves streams between the NATS servers and this one.
type mover struct {
	a      *app
	relay  *relay.Relay
	engine *flip.Engine // nil before open
	conns  map[string]*origin.Conn
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mirrors *metrics.Mirrors

	mu     sync.Mutex
	copies map[cutover.Scope]*capture.Capturer // what copies each stream, or did
}

// newMover returns nil when no stream is, or is to be, on its way.
func newMover(a *app) *mover {
	if !a.cfg.Bus.Cutover {
		return nil
	}
	m := &mover{
		a: a, relay: relay.New(), conns: make(map[string]*origin.Conn),
		copies: make(map[cutover.Scope]*capture.Capturer),
	}
	m.mirrors = metrics.NewMirrors(m.mirrored)
	return m
}

// open takes up what is on its way, before any client is served.
func (m *mover) open(ctx context.Context) error {
	if err := m.dial(); err != nil {
		return err
	}
	e, err := flip.Open(ctx, flip.Options{
		Dir:   filepath.Join(m.a.cfg.Server.StoreDir, config.JournalDir),
		Local: m.a.streams.svc.Cutover(), Relay: m.relay, Bus: m.a.router, Barrier: m.a.gw.Barrier, Site: m.site,
		Logger: m.a.log.Logger,
	})
	if err != nil {
		return fmt.Errorf("can't take up the streams that are on their way: %w", err)
	}
	m.engine = e
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	m.ended.Go(func() { m.run(run) })
	return nil
}

// dial makes the gateway's own connections to the servers.
func (m *mover) dial() error {
	b := &m.a.cfg.Bus
	list := b.Accounts
	if len(list) == 0 {
		list = []config.BusAccount{{Name: "$G"}}
	}
	var urls []string
	for _, at := range b.Upstream {
		urls = append(urls, at.String())
	}
	for i := range list {
		l := &list[i]
		c, err := origin.Dial(origin.Options{
			Account: l.Name, URLs: urls, TLS: b.TLS, HandshakeFirst: b.HandshakeFirst,
			Credentials: origin.Credentials{
				User: l.User, Password: l.Password, Token: l.Token, Creds: l.Creds, Nkey: l.Nkey,
			},
			ServerName: m.a.gw.Stats().ServerName, Logger: m.a.log.Logger,
		})
		if err != nil {
			return err
		}
		m.conns[l.Name] = c
	}
	return nil
}

// site implements flip.Options.Site.
func (m *mover) site(account string) (flip.Site, error) {
	c := m.conns[account]
	if c == nil {
		return nil, fmt.Errorf("the gateway has no login of its own in account %s: bus { accounts { %q { ... } } }",
			account, account)
	}
	return &site{c, m}, nil
}

// site is the servers as an account sees them.
type site struct {
	conn  *origin.Conn
	mover *mover
}

// Conn implements flip.Site.
func (s *site) Conn() *nats.Conn { return s.conn.NATS() }

// Stream implements flip.Site.
func (s *site) Stream(name string) cutover.Upstream { return s.conn.Stream(name) }

// steerEvery is how often it is looked whether the streams are where the mode wants them.
const steerEvery = 2 * time.Second

// run brings the streams to where the mode wants them.
func (m *mover) run(ctx context.Context) {
	t := time.NewTicker(steerEvery)
	defer t.Stop()
	said := make(map[string]string)
	for {
		for scope, err := range m.steer(ctx) {
			if text := err.Error(); said[scope] != text && ctx.Err() == nil {
				said[scope] = text
				m.a.log.Warn("Stream {stream} is not where bus mode {mode} wants it: {error}", slog.String("stream", scope),
					slog.String("mode", string(m.a.cfg.Bus.Mode)), slog.Any("error", err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// steer makes one attempt, and returns what did not succeed, by stream.
func (m *mover) steer(ctx context.Context) map[string]error {
	failed := make(map[string]error)
	mode := m.a.cfg.Bus.Mode
	if mode != config.ModeNATS {
		m.discover(ctx, failed)
	}
	o := flip.MoveOptions{By: "bus mode " + string(mode), Retries: 2}
	for _, scope := range m.engine.Streams() {
		st, err := m.engine.Status(scope)
		switch {
		case err != nil:
		case mode == config.ModeNATS && st.Phase == flip.PhaseEHDB:
			_, err = m.engine.Rollback(ctx, scope, o)
		case mode == config.ModeEHDB && st.Phase == flip.PhaseShadow:
			_, err = m.engine.Flip(ctx, scope, o)
		}
		if err != nil {
			failed[scope.String()] = err
		}
	}
	return failed
}

// discover brings the streams of the servers under watch.
func (m *mover) discover(ctx context.Context, failed map[string]error) {
	for account, c := range m.conns {
		list, err := c.Streams(ctx)
		var missing *origin.MissingError
		if err != nil && !errors.As(err, &missing) {
			failed[account] = err
			continue
		}
		for _, info := range list {
			name := info.Config.Name
			if !origin.Selects(m.a.cfg.Bus.Streams, name) {
				continue
			}
			scope := cutover.Scope{Account: account, Stream: name}
			if err := m.engine.Watch(ctx, scope, "discovered"); err != nil {
				failed[scope.String()] = err
			}
		}
	}
}

// stop ends what moves. Who has the say about a stream stays.
func (m *mover) stop() {
	if m.cancel != nil {
		m.cancel()
		m.ended.Wait()
	}
	if m.engine != nil {
		m.engine.Close()
	}
	for _, c := range m.conns {
		c.Close()
	}
}
