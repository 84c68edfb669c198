package jetstreamapi

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/source"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// copies is what a stream copies from others, and its part in the direct gets of the stream it mirrors.
type copies struct {
	mu      sync.Mutex
	links   []*copyLink // its mirror, or its sources in the order of the configuration
	running bool        // the links are to run

	caughtUp bool        // the mirror has nearly all of its origin
	direct   bus.Session // takes part in the direct gets of the origin; nil: does not
}

// copyLink is a link with what it was made for.
type copyLink struct {
	*source.Link
	index  string
	mirror bool
}

// configOf returns the configuration of a stream, nil if there is none of that name.
func (a *account) configOf(name string) *server.StreamConfig {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.streams[name]; e != nil {
		return e.config()
	}
	return nil
}

// serving returns the stream of that name, nil if there is none that serves.
func (a *account) serving(name string) *stream.Stream {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.streams[name]; e != nil && e.offline == nil {
		return e.stream
	}
	return nil
}

// needPositions makes the state log of the positions of sources, where cfg has some and there is none yet.
func (e *streamEntry) needPositions(cfg *server.StreamConfig) error {
	if len(cfg.Sources) == 0 || e.positions != nil {
		return nil
	}
	st := e.store()
	if st == nil {
		return storage.ErrStopped
	}
	p, err := st.CreateStateLog(e.shards[0], fmt.Sprintf("%s/%s sources", e.acc.name, e.name), e.memory)
	if err != nil {
		return err
	}
	e.positions, e.positionsID = p, p.ID()
	return nil
}

// linkUp makes the links that cfg asks for. Those that were there already go on; others end.
func (e *streamEntry) linkUp(cfg *server.StreamConfig) error {
	e.copies.mu.Lock()
	before := e.copies.links
	var after []*copyLink
	var errs []error
	add := func(src *server.StreamSource, mirror bool) {
		index := stream.IndexName(src)
		for _, l := range before {
			if l.index == index && l.mirror == mirror {
				after = append(after, l)
				return
			}
		}
		l, err := e.newLink(src, mirror)
		if err != nil {
			errs = append(errs, err)
			return
		}
		if e.copies.running {
			l.Start(e.acc.svc.stopping)
		}
		after = append(after, &copyLink{Link: l, index: index, mirror: mirror})
	}
	if cfg.Mirror != nil {
		add(cfg.Mirror, true)
	}
	for _, src := range cfg.Sources {
		add(src, false)
	}
	e.copies.links = after
	e.copies.mu.Unlock()
	for _, l := range before {
		if !slices.Contains(after, l) {
			l.Forget() // not under the lock, which the link may be waiting for
		}
	}
	return errors.Join(errs...)
}

func (e *streamEntry) newLink(src *server.StreamSource, mirror bool) (*source.Link, error) { //nolint:revive // a kind
	o := source.Options{
		Account:   e.acc.name,
		Domain:    e.acc.svc.opts.Domain,
		Bus:       e.acc.svc.opts.Bus,
		Upstreams: e.acc.svc.upstreams,
		Target:    e.stream,
		Source:    src,
		Mirror:    mirror,
		Find:      e.acc.serving,
		Logger:    e.logger(),
	}
	if mirror {
		o.CaughtUp = e.mirrorCaughtUp
	}
	return source.New(o)
}

// relink follows a change of the configuration.
func (e *streamEntry) relink(cfg *server.StreamConfig) error {
	return errors.Join(e.linkUp(cfg), e.updateMirrorDirect())
}

// startLinks lets the links run.
func (e *streamEntry) startLinks() {
	e.copies.mu.Lock()
	defer e.copies.mu.Unlock()
	if e.copies.running || e.offline != nil {
		return
	}
	e.copies.running = true
	for _, l := range e.copies.links {
		l.Start(e.acc.svc.stopping)
	}
}

// unlink ends the links for now.
func (e *streamEntry) unlink() { e.endLinks((*source.Link).Stop) }

// forgetLinks ends the links for good.
func (e *streamEntry) forgetLinks() { e.endLinks((*source.Link).Forget) }

func (e *streamEntry) endLinks(end func(*source.Link)) {
	e.copies.mu.Lock()
	links := e.copies.links
	e.copies.links, e.copies.running = nil, false
	e.copies.mu.Unlock()
	for _, l := range links {
		end(l.Link)
	}
	e.copies.mu.Lock()
	defer e.copies.mu.Unlock()
	e.closeMirrorDirect()
}

// joinLinks makes the links of all streams known to streams that keep messages only for those who want them.
func (a *account) joinLinks() {
	for _, e := range a.sortedStreams("") {
		e.copies.mu.Lock()
		for _, l := range e.copies.links {
			if err := l.Join(a.svc.stopping); err != nil {
				e.logger().Error("a source's position cannot be read", slog.Any("error", err))
			}
		}
		e.copies.mu.Unlock()
	}
}

func (a *account) startLinks() {
	for _, e := range a.sortedStreams("") {
		e.startLinks()
	}
}

// origins returns the stream's mirror and sources as the API shows them.
func (e *streamEntry) origins() (mirror *server.StreamSourceInfo, sources []*server.StreamSourceInfo) {
	e.copies.mu.Lock()
	defer e.copies.mu.Unlock()
	for _, l := range e.copies.links {
		if l.mirror {
			mirror = l.Info()
		} else {
			sources = append(sources, l.Info())
		}
	}
	return mirror, sources
}

// mirrorCaughtUp is called once the mirror has nearly all of its origin.
func (e *streamEntry) mirrorCaughtUp() {
	e.copies.mu.Lock()
	e.copies.caughtUp = true
	e.copies.mu.Unlock()
	if err := e.updateMirrorDirect(); err != nil {
		e.logger().Error("a mirror takes no part in direct gets", slog.Any("error", err))
	}
}

// updateMirrorDirect takes part in the direct gets of the origin, or not, as the configuration says.
func (e *streamEntry) updateMirrorDirect() error {
	e.copies.mu.Lock()
	defer e.copies.mu.Unlock()
	cfg := e.config()
	if cfg.Mirror == nil || !cfg.MirrorDirect {
		e.closeMirrorDirect()
		return nil
	}
	if !e.copies.caughtUp || e.copies.direct != nil || !e.copies.running {
		return nil
	}
	s, err := e.acc.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: e.acc.name}, directSink{e})
	if err != nil {
		return err
	}
	e.copies.direct = s
	return e.subscribeDirect(s, cfg.Mirror.Name)
}

// closeMirrorDirect ends that. copies.mu is held.
func (e *streamEntry) closeMirrorDirect() {
	if e.copies.direct != nil {
		e.copies.direct.Close()
		e.copies.direct = nil
	}
}
