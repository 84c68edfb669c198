package subjects

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// ShardHash is the hash that places one token: XxHash64 (seed 0) over the 8 little-endian bytes of the number if the
// token, trimmed, is a decimal int64, else over the bytes of the trimmed token. So an execution id goes where every
// other part of the system sends it.
func ShardHash[S Text](token S) uint64 {
	t := strings.TrimSpace(view(token))
	if n, ok := parseInt64(t); ok {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		return xxhash.Sum64(b[:])
	}
	return xxhash.Sum64String(t)
}

// ShardOf returns the shard of a token among n by [ShardHash]; 0 if n <= 1.
func ShardOf[S Text](token S, n int) int {
	if n <= 1 {
		return 0
	}
	return int(ShardHash(token) % uint64(n))
}

// shardHasher hashes several tokens: the bytes that ShardHash takes of each, with a dot between them.
type shardHasher struct {
	digest xxhash.Digest
	tokens int
}

func newShardHasher() shardHasher {
	var h shardHasher
	h.digest.Reset()
	return h
}

func (h *shardHasher) token(token string) {
	if h.tokens++; h.tokens > 1 {
		h.text(separator)
	}
	t := strings.TrimSpace(token)
	n, ok := parseInt64(t)
	if !ok {
		h.text(t)
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	_, _ = h.digest.Write(b[:]) // never fails
}

func (h *shardHasher) text(s string) { _, _ = h.digest.WriteString(s) } // never fails

func (h *shardHasher) sum() uint64 { return h.digest.Sum64() }

// parseInt64 is strconv.ParseInt in base 10 without its error, which would cost an allocation for every name.
func parseInt64(s string) (n int64, ok bool) {
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 {
			return 0, false
		}
		if n < (math.MinInt64+d)/10 { // counted down, as there is one more negative number
			return 0, false
		}
		n = n*10 - d
	}
	if negative {
		return n, true
	}
	return -n, n != math.MinInt64
}
