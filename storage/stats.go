package storage

// Stats is what a Store counts, all since Open unless said otherwise.
type Stats struct {
	Shards []ShardStats
	Appends, OutOfOrderAppends,
	Commits, Syncs, BytesWritten uint64
	TailCuts         uint64
	DroppedSegments, // whose space was given back
	MovedRecords uint64 // written again to let go of their segment
	DiskBytes      int64 // on disk now: the tail and the parts
	Parts          int   // on disk now
	PlainParts     int   // of them, those still to be encrypted since the directory is
	Quarantined    int   // files that Open put aside, because nothing accounts for them
	Seals, Merges  uint64
	Held           uint64 // how often producers were held back because sealing did not keep up
	Unsealed       int64  // records that are not in parts
	RecoverSeconds float64
	RecoverRecords uint64
}

// ShardStats is one shard's part of Stats.
type ShardStats struct {
	Head, Committed uint64 // positions: records of the shard since the directory was made, global and monotonic
	QueuedBytes     int64

	// What the last Open read of the tail: the positions of the shard it began and ended at, and how many records it
	// read. What is before ResumeFrom was in parts and in the manifest.
	ResumeFrom, ResumeTip, ReplayRecords uint64
	ResumePersisted                      bool // ResumeFrom was in the manifest; else the whole tail was read
}

// recovery is what Open counts.
type recovery struct {
	seconds float64
	records uint64
	cuts    uint64

	begin, tip, replayed []uint64 // of each shard
	quarantined          int
	persisted            bool
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
	if sl := s.sealer; sl != nil {
		st.Seals, st.Merges, st.Quarantined = sl.seals.Load(), sl.merges.Load(), s.recover.quarantined
		st.Parts, st.PlainParts = int(sl.files.Load()), int(sl.plain.Load())
		st.Held = w.held.Load()
		st.Unsealed, _ = w.unsealed.backlog()
		st.DiskBytes += sl.bytes.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.shards {
		sh := &w.shards[i]
		st.Shards[i] = ShardStats{Head: sh.head, Committed: sh.committed.Load(), QueuedBytes: sh.queued}
		if i < len(s.recover.begin) {
			x := &st.Shards[i]
			x.ResumeFrom, x.ResumeTip, x.ReplayRecords = s.recover.begin[i], s.recover.tip[i], s.recover.replayed[i]
			x.ResumePersisted = s.recover.persisted
		}
	}
	return st
}
