package main

import (
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/storage"
)

// The log's own alarms and the disk decide G15 and G16.
func TestLogDecidesGates(t *testing.T) {
	const disk = 1 << 30
	fine := storage.Stats{DiskBytes: disk, Syncs: 9, BytesWritten: 100}
	for name, tc := range map[string]struct {
		st       storage.Stats
		up       bool
		free     uint64
		g15, g16 gate.State
	}{
		"all is well":          {fine, true, 3 * disk, gate.Pass, gate.Pass},
		"little room":          {fine, true, disk, gate.Fail, gate.Pass},
		"an append below":      {storage.Stats{DiskBytes: disk, Syncs: 9, OutOfOrderAppends: 1}, true, 3 * disk, gate.Pass, gate.Fail},
		"nothing written yet":  {storage.Stats{DiskBytes: disk}, true, 3 * disk, gate.Pending, gate.Pass},
		"written, not synced":  {storage.Stats{DiskBytes: disk, BytesWritten: 100}, true, 3 * disk, gate.Fail, gate.Pass},
		"it takes nothing now": {fine, false, 3 * disk, gate.Pass, gate.Fail},
	} {
		facts := gate.Facts{}
		for _, fact := range []string{gate.FailureDomains, gate.UnreplicatedAge} {
			facts[fact] = gate.Fact{At: time.Now(), NotApplicable: "one copy"}
		}
		check := func(facts gate.Facts, g15, g16 gate.State) {
			t.Helper()
			for _, g := range gate.Evaluate(facts, cutover.Scope{}, gate.Options{Now: time.Now()}).Gates {
				if want, ok := map[string]gate.State{"G15": g15, "G16": g16}[g.ID]; ok && g.State != want {
					t.Errorf("%s: %s is %s (%s), want %s", name, g.ID, g.State, g.Reason, want)
				}
			}
		}
		check(facts, gate.Unknown, gate.Unknown)
		for _, fact := range gate.FactNames() {
			if f, ok := logFact(fact, &tc.st, tc.up, tc.free); ok {
				facts[fact] = f
			}
		}
		check(facts, tc.g15, tc.g16)
	}
}
