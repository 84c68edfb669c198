package storage

// Stats is what a Store counts, all since Open unless said otherwise.
type Stats struct {
	Shards []ShardStats
	Appends, OutOfOrderAppends,
	Commits, Syncs, BytesWritten uint64
	TailCuts         uint64
	DroppedSegments, // whose space was given back
	MovedRecords uint64 // written again to let go of their segment
	DiskBytes      int64 // on disk now
	RecoverSeconds float64
	RecoverRecords uint64
}

// ShardStats is one shard's part of Stats.
type ShardStats struct {
	Head, Committed uint64 // positions: records of the shard since the directory was made, global and monotonic
	QueuedBytes     int64
}

// recovery is what Open counts.
type recovery struct {
	seconds float64
	records uint64
	cuts    uint64
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	w := s.w
	st := Stats{
		Appends: w.appends.Load(), OutOfOrderAppends: w.outOfOrder.Load(), Commits: w.commits.Load(),
		Syncs: w.syncs.Load(), BytesWritten: w.written.Load(),
		DroppedSegments: w.space.dropped.Load(), MovedRecords: w.space.moved.Load(),
		TailCuts: s.recover.cuts, RecoverSeconds: s.recover.seconds, RecoverRecords: s.recover.records,
		Shards: make([]ShardStats, len(w.shards)),
	}
	if w.tail != nil {
		st.DiskBytes = w.tail.Size()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.shards {
		sh := &w.shards[i]
		st.Shards[i] = ShardStats{Head: sh.head, Committed: sh.committed.Load(), QueuedBytes: sh.queued}
	}
	return st
}
