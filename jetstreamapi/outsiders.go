package jetstreamapi

import (
	"errors"
	"slices"
)

// setOutsiders makes names the accounts that are told that they have no JetStream. reload is held, or nothing else runs
// yet or any more.
func (s *Service) setOutsiders(names []string) error {
	for name, a := range s.outsiders {
		if !slices.Contains(names, name) {
			a.stopServing()
			a.stopAnswering()
			delete(s.outsiders, name)
		}
	}
	var errs []error
	for _, name := range names {
		if s.outsiders[name] != nil {
			continue
		}
		a := newAccount(s, name, NoLimits())
		a.outsider = true
		if err := a.open(); err != nil {
			errs = append(errs, err)
			continue
		}
		s.outsiders[name] = a
	}
	return errors.Join(errs...)
}
