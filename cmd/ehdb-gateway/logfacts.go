package main

import (
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/storage"
)

// logFacts are what the log knows for the gates.
type logFacts struct{ s *streams }

// Fact implements gate.Inputs.
func (l logFacts) Fact(_ cutover.Scope, name string) (gate.Fact, bool) {
	st := l.s.stats()
	free, _ := diskSpace(l.s.cfg.DataDir)
	return logFact(name, &st, l.s.up(), free)
}

// logFact is what the log's own figures say, and whether it takes records.
//
//nolint:revive // up is one of the figures
func logFact(name string, st *storage.Stats, up bool, free uint64) (gate.Fact, bool) {
	f := gate.Fact{N: 1, At: time.Now(), Source: "log"}
	switch name {
	case gate.OutOfOrder:
		f.Value = float64(st.OutOfOrderAppends)
	case gate.AppendFailed:
		if f.Value = gate.Yes(!up); !up {
			f.Detail = "the data directory takes no records now"
		}
	case gate.DedupeConflict:
		f.NotApplicable = "a message id names one record, the first that had it: a second is answered as its duplicate"
	case gate.AckAfterSync:
		f.Value, f.Detail = 1, fmt.Sprintf("%d groups of records synced before they were acknowledged, %d bytes",
			st.Syncs, st.BytesWritten)
		if st.Syncs == 0 {
			f.Value, f.Lapsed = 0, "nothing has been synced yet"
		}
		if st.Syncs == 0 && st.BytesWritten > 0 {
			f.Lapsed, f.Detail = "", fmt.Sprintf("%d bytes are written, and nothing was ever synced", st.BytesWritten)
		}
	case gate.DiskFree:
		used := float64(max(st.DiskBytes, 1))
		f.Value = float64(free) / used
		f.Detail = fmt.Sprintf("%d bytes free, %d in use", free, st.DiskBytes)
	default:
		return gate.Fact{}, false
	}
	return f, true
}
