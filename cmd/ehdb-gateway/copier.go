package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// Capture implements flip.Site.
func (s *site) Capture(name string, _ cutover.Copy) flip.Capture {
	m := s.mover
	c := capture.New(capture.Options{
		Scope: cutover.Scope{Account: s.conn.Account(), Stream: name},
		From:  s.conn.Stream(name), To: m.a.streams.svc.Cutover(),
		Rate: int(m.a.cfg.Bus.CopyRate), Busy: m.busy, Logger: m.a.log.Logger,
		Copied: func(lag time.Duration, _ int) { m.mirrors.Copied(lag) },
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copies[cutover.Scope{Account: s.conn.Account(), Stream: name}] = c
	return c
}

// busy returns why copying what is behind has to wait.
func (m *mover) busy() string {
	st := m.a.streams.svc.Store()
	switch {
	case st == nil:
		return "the data directory is being opened again"
	case st.Stall() != nil:
		return "the data directory has its hands full"
	}
	return ""
}

// captured returns how far the copies of streams are, by account and stream.
func (m *mover) captured() []capture.Status {
	m.mu.Lock()
	list := slices.Collect(maps.Values(m.copies))
	m.mu.Unlock()
	out := make([]capture.Status, len(list))
	for i, c := range list {
		out[i] = c.Status()
	}
	slices.SortFunc(out, func(a, b capture.Status) int { return strings.Compare(a.Scope.String(), b.Scope.String()) })
	return out
}

// mirrored is captured as the metrics show it.
func (m *mover) mirrored() []metrics.Mirror {
	list := m.captured()
	out := make([]metrics.Mirror, len(list))
	for i := range list {
		st, n := &list[i], &list[i].Counts
		out[i] = metrics.Mirror{
			Account: st.Scope.Account, Stream: st.Scope.Stream, State: string(st.State),
			Lag: st.Lag, Queue: n.Pending, Running: st.Running,
			Records: map[string]uint64{
				"enqueued": n.Enqueued, "enqueued_after_wait": n.EnqueuedAfterWait,
				"queue_full_inline": n.QueueFullInline, "queue_closed_inline": n.QueueClosedInline,
				"drained": n.Drained, "returned": n.Returned, "shutdown_abandoned": n.ShutdownAbandoned,
			},
		}
	}
	return out
}
