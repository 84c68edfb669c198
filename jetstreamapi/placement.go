package jetstreamapi

import (
	"github.com/cespare/xxhash/v2"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/storage"
)

// hashPlacement puts a whole stream into one shard, by hash of account and name.
type hashPlacement struct{}

func (hashPlacement) Shards(account, stream string, _ []string, n int) []uint32 {
	return []uint32{hashShard(account, stream, n)}
}

func (hashPlacement) Route(account, stream string, _ []byte, n int) uint32 {
	return hashShard(account, stream, n)
}

func hashShard(account, stream string, n int) uint32 {
	if n <= 1 {
		return 0
	}
	return uint32(xxhash.Sum64String(account+"/"+stream) % uint64(n)) //nolint:gosec // below n
}

// place returns the shards of a new stream; the first is its home.
func (s *Service) place(account, stream string, subjects []string, shards int) []storage.ShardID {
	out := make([]storage.ShardID, 0, 1)
	for _, id := range s.opts.Placement.Shards(account, stream, subjects, shards) {
		if int(id) < shards {
			out = append(out, storage.ShardID(id))
		}
	}
	if len(out) == 0 {
		out = append(out, storage.ShardID(hashShard(account, stream, shards)))
	}
	return out
}

// Placed returns the shards in which a stream is, or would be if it were made now; the first is its home. Empty: they
// are not known, or the stream is in memory.
func (s *Service) Placed(account, stream string, subjects []string) (out []uint32) {
	st := s.fileStore()
	if st == nil {
		return nil
	}
	shards, there := s.shardsOf(account, stream)
	if !there {
		shards = s.place(account, stream, subjects, st.Shards())
	}
	for _, id := range shards {
		out = append(out, uint32(id))
	}
	return out
}

// shardsOf returns the shards of a stream that is there, in whichever role.
func (s *Service) shardsOf(account, stream string) ([]storage.ShardID, bool) {
	c := streamCopy{s, cutover.Scope{Account: account, Stream: stream}}
	e, err := c.entry()
	if err != nil {
		return nil, false
	}
	return e.shards, true
}

// router returns what picks the shard (an index into shards) of a subject in a spread stream. A subject whose shard the
// stream does not have, because the map changed since, lives in its home shard.
func (s *Service) router(account, stream string, shards []storage.ShardID) func(key []byte) int {
	index := make(map[uint32]int, len(shards))
	n := 0
	for i, id := range shards {
		index[uint32(id)] = i
	}
	if st := s.fileStore(); st != nil {
		n = st.Shards()
	}
	return func(key []byte) int { return index[s.opts.Placement.Route(account, stream, key, n)] }
}
