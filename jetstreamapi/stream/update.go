package stream

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Update changes the configuration (already checked by CheckUpdate) and trims at once what no longer fits. On an error
// nothing has changed.
func (s *Stream) Update(cfg server.StreamConfig) error {
	set, err := newSettings(&cfg, s.o.Domain)
	if err != nil {
		return fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	old := s.settings.Load()
	if err := s.subscribeNew(old, set); err != nil {
		return fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	sweep, err := s.apply(old, set)
	if err != nil {
		return fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	if set.maxPer > 0 {
		s.trimSubjects(set)
	}
	for _, subject := range missing(old.cfg.Subjects, set.cfg.Subjects) {
		s.input.Unsubscribe(subject, 0)
	}
	if sweep {
		s.sweep(0, unneeded)
	}
	s.kick()
	return nil
}

// subscribeNew adds the subjects that set has and old has not.
func (s *Stream) subscribeNew(old, set *settings) error {
	added := missing(set.cfg.Subjects, old.cfg.Subjects)
	for i, subject := range added {
		if _, err := s.input.Subscribe(subject, subject, ""); err != nil {
			for _, undo := range added[:i] {
				s.input.Unsubscribe(undo, 0)
			}
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	return nil
}

// apply makes set the stream's settings, and reports whether messages have to be looked at for want of interest.
func (s *Stream) apply(old, set *settings) (sweep bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head.closed {
		return false, errStopped
	}
	if err := s.positions.keep(set.cfg.Sources); err != nil {
		return false, err
	}
	s.settings.Store(set)
	s.log.SetCompress(set.cfg.Compression == server.S2Compression)
	if set.replacesBySize() {
		s.inflight.start(s.head.lastSeq)
	}
	s.dropBatches(!set.cfg.AllowAtomicPublish, !set.cfg.AllowBatchPublish)
	s.dedupe.window = set.cfg.Duplicates
	s.dedupe.expire(s.stamp())
	if s.head.trimDue = set.evicts(); set.maxPer == 0 {
		s.trim(set)
	}
	s.startScan(set.cfg.AllowMsgTTL && !old.cfg.AllowMsgTTL, set.cfg.AllowMsgSchedules && !old.cfg.AllowMsgSchedules)
	if set.cfg.MaxAge != old.cfg.MaxAge {
		s.upkeep.ageFrom = 0
		s.startExpiry(set)
	}
	if set.cfg.Retention != server.InterestPolicy || old.cfg.Retention == server.InterestPolicy {
		return false, nil
	}
	if len(*s.audience.list.Load()) > 0 {
		return true, nil
	}
	if _, err := s.log.Purge(nil, 0, 0, nil); err != nil {
		return true, nil // the sweep tries each message
	}
	s.removed()
	return false, nil
}

// missing returns what of list is not in other.
func missing(list, other []string) []string {
	in := make(map[string]bool, len(other))
	for _, subject := range other {
		in[subject] = true
	}
	var out []string
	for _, subject := range list {
		if !in[subject] {
			out = append(out, subject)
		}
	}
	return out
}
