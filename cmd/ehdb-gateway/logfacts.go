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
		f.Value, f.Detail = 0, "a message id names one record: the first that had it"
	case gate.DiskFree:
		used := float64(max(st.DiskBytes, 1))
		f.Value = float64(free) / used
		f.Detail = fmt.Sprintf("%d bytes free, %d in use", free, st.DiskBytes)
	default:
		return gate.Fact{}, false
	}
	return f, true
}
