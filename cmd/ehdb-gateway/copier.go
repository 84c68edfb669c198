package main

import "github.com/noetl/ehdb-gateway/internal/metrics"

// mirrored is how far the copies of streams are, as the metrics show it.
func (m *mover) mirrored() []metrics.Mirror {
	if m.pilot == nil {
		return nil
	}
	list := m.pilot.Captured()
	out := make([]metrics.Mirror, len(list))
	for i := range list {
		st, n := &list[i], &list[i].Counts
		out[i] = metrics.Mirror{
			Account: st.Scope.Account, Stream: st.Scope.Stream, State: string(st.State),
			Lag: st.Lag, Queue: n.Pending, Running: st.Running, Paused: st.Paused,
			Records: map[string]uint64{
				"enqueued": n.Enqueued, "enqueued_after_wait": n.EnqueuedAfterWait,
				"queue_full_inline": n.QueueFullInline, "queue_closed_inline": n.QueueClosedInline,
				"drained": n.Drained, "returned": n.Returned, "shutdown_abandoned": n.ShutdownAbandoned,
			},
		}
	}
	return out
}
