package jetstreamapi

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// SetAccounts changes which accounts have JetStream, and their limits, while the service runs. The streams of an
// account that lost it are kept and served again once it has it back. Limits hold for what comes from then on. The
// outsiders are the accounts without (see Options).
func (s *Service) SetAccounts(accounts map[string]server.JetStreamAccountLimits, outsiders []string) error {
	s.reload.Lock()
	defer s.reload.Unlock()
	still := slices.DeleteFunc(slices.Clone(outsiders), func(name string) bool { return s.outsiders[name] == nil })
	errs := []error{s.setOutsiders(still)} // who is no outsider any more is none before it has JetStream
	for _, a := range s.sortedAccounts() {
		limits, ok := accounts[a.name]
		if ok {
			a.limits.Store(&limits)
			continue
		}
		s.removeAccount(a)
	}
	for name, limits := range accounts {
		if s.account(name) == nil {
			errs = append(errs, s.addAccount(name, limits))
		}
	}
	return errors.Join(append(errs, s.setOutsiders(outsiders))...)
}

// StoredAccounts returns the accounts that have streams on disk, whether they are served or not, sorted.
func (s *Service) StoredAccounts() ([]string, error) {
	c, err := s.fileCatalog()
	if err != nil {
		return nil, err
	}
	found, _, err := c.records()
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range found {
		names = append(names, found[i].Account)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SetMaxPayload changes Options.MaxPayload while the service runs.
func (s *Service) SetMaxPayload(n int64) {
	if n <= 0 {
		n = server.MAX_PAYLOAD_SIZE
	}
	s.maxPayload.Store(n)
}

// SetMaxStorage raises Options.MaxMemory and Options.MaxStore, in bytes, while the service runs. A smaller value, and
// any where there is no limit, is left aside: what is stored could already be more.
func (s *Service) SetMaxStorage(memory, disk int64) {
	raise := func(limit *atomic.Int64, n int64) {
		if old := limit.Load(); old >= 0 && n > old {
			limit.Store(n)
		}
	}
	raise(&s.maxMemory, memory)
	raise(&s.maxStore, disk)
}

// MaxStorage returns the limits in force, in bytes; -1: none.
func (s *Service) MaxStorage() (memory, disk int64) { return s.maxMemory.Load(), s.maxStore.Load() }

func (s *Service) removeAccount(a *account) {
	a.stopServing()
	a.stopAssets(a.sortedStreams(""))
	for _, e := range a.sortedStreams("") {
		a.removeStream(e)
		if !e.memory {
			continue
		}
		if err := e.dropLog(); err != nil {
			e.logger().Warn("a stream in memory is not freed", slog.Any("error", err))
		}
	}
	a.forgetStandbys()
	s.mu.Lock()
	delete(s.accounts, a.name)
	s.mu.Unlock()
	a.stopAnswering()
}

// addAccount makes an account and brings back what the catalog has of it.
func (s *Service) addAccount(name string, limits server.JetStreamAccountLimits) error {
	a := newAccount(s, name, limits)
	s.mu.Lock()
	s.accounts[name] = a
	s.mu.Unlock()
	c, err := s.fileCatalog()
	if err == nil {
		err = s.recoverAssets(c, s.fileStore(), func(account string) bool { return account == name })
	}
	return errors.Join(err, a.open())
}
