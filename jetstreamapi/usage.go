package jetstreamapi

import (
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// usage counts stored bytes, as they count against limits.
type usage struct {
	memory, store         atomic.Int64
	reservedMem, reserved atomic.Int64 // sum of max_bytes of the streams that have one
}

func (u *usage) used(t server.StorageType) *atomic.Int64 {
	if t == server.MemoryStorage {
		return &u.memory
	}
	return &u.store
}

func (u *usage) reservedFor(t server.StorageType) *atomic.Int64 {
	if t == server.MemoryStorage {
		return &u.reservedMem
	}
	return &u.reserved
}

// addUsed counts n bytes (negative: gives them back) of an account.
func (a *account) addUsed(t server.StorageType, n int64) {
	a.used.used(t).Add(n)
	a.svc.used.used(t).Add(n)
}

// addReserved counts the max_bytes of a stream's configuration; sign is 1 or -1.
func (a *account) addReserved(cfg *server.StreamConfig, sign int64) {
	if cfg.MaxBytes > 0 {
		a.used.reservedFor(cfg.Storage).Add(sign * cfg.MaxBytes)
		a.svc.used.reservedFor(cfg.Storage).Add(sign * cfg.MaxBytes)
	}
}

// reserve takes n bytes for a message, or returns the API error that refuses it. Two publishers may pass the last free
// bytes together: the limit is then overshot by one message, never by more than there are streams.
func (a *account) reserve(t server.StorageType, n int64) error {
	if l := storageLimit(a.limits.Load(), t); l >= 0 && a.used.used(t).Load()+n > l {
		return server.NewJSAccountResourcesExceededError()
	}
	if l := a.svc.maxBytes(t); l >= 0 && a.svc.used.used(t).Load()+n > l {
		return server.NewJSInsufficientResourcesError()
	}
	a.addUsed(t, n)
	return nil
}

// storageLimit is an account's limit for a storage type, -1 if there is none.
func storageLimit(l *server.JetStreamAccountLimits, t server.StorageType) int64 {
	if t == server.MemoryStorage {
		return l.MaxMemory
	}
	return l.MaxStore
}

// maxBytes is the server's limit for a storage type, -1 if there is none.
func (s *Service) maxBytes(t server.StorageType) int64 {
	if t == server.MemoryStorage {
		return s.maxMemory.Load()
	}
	return s.maxStore.Load()
}

// checkBytes checks that a stream with this max_bytes and storage fits beside what the account has reserved for others.
// addBytes is what the configuration adds to the server's reservations.
func (a *account) checkBytes(cfg *server.StreamConfig, reservedByOthers, addBytes int64) *jsapi.Error {
	exceeded := server.NewJSStorageResourcesExceededError
	switch cfg.Storage {
	case server.MemoryStorage:
		exceeded = server.NewJSMemoryResourcesExceededError
	case server.FileStorage:
	default:
		return nil // not completed yet: checked again when it is
	}
	need := addBytes
	if need < 0 {
		need = 1 // no limit of its own: there must be room for something
	}
	if m := storageLimit(a.limits.Load(), cfg.Storage); exceeds(reservedByOthers, need, m) {
		return exceeded()
	}
	if exceeds(a.svc.used.reservedFor(cfg.Storage).Load(), need, a.svc.maxBytes(cfg.Storage)) {
		return exceeded()
	}
	return nil
}

// exceeds reports whether need does not fit beside taken under limit (negative: no limit).
func exceeds(taken, need, limit int64) bool {
	return limit >= 0 && (taken > limit || need > limit-taken)
}

// reservedByOthers sums max_bytes of the account's other streams of the same storage type, if the account has a limit.
func (a *account) reservedByOthers(cfg *server.StreamConfig) int64 {
	if storageLimit(a.limits.Load(), cfg.Storage) < 0 {
		return 0
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	var sum int64
	for _, e := range a.streams {
		c := e.config()
		if e.name != cfg.Name && c.Storage == cfg.Storage && c.MaxBytes > 0 {
			sum += c.MaxBytes
		}
	}
	return sum
}
