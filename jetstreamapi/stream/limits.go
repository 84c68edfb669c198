package stream

import (
	"bytes"
	"time"

	"github.com/noetl/ehdb-gateway/storage"
)

// duplicateOf implements facts.
func (s *Stream) duplicateOf(id []byte) uint64 {
	if s.dedupe.owed != 0 {
		s.loadDedupe()
	}
	return s.dedupe.find(id)
}

// key implements facts.
func (s *Stream) key(subject []byte) storage.KeyState {
	if a := s.head.ahead; a != nil && bytes.Equal(a.Key(), subject) {
		return s.log.KeyAt(a)
	}
	return s.log.Key(subject)
}

// totals implements facts.
func (s *Stream) totals() (messages, size uint64) {
	st := s.log.State()
	return st.Messages, st.Bytes
}

// trim removes what the limits of the whole stream no longer allow. Deletions that the log refuses (its queue is full)
// are tried again with the next message.
func (s *Stream) trim(set *settings) {
	s.retryOwed()
	if !set.evicts() || !s.head.trimDue {
		return
	}
	s.head.trimDue = false
	st := s.log.State()
	removed := false
	if set.maxMsgs > 0 && st.Messages > set.maxMsgs {
		upTo, keep := uint64(0), set.maxMsgs
		if st.Deleted == 0 { // no need to count
			upTo, keep = st.FirstSeq+st.Messages-set.maxMsgs, 0
		}
		if _, err := s.log.Purge(nil, upTo, keep, nil); err != nil {
			s.head.trimDue = true
			return
		}
		removed = true
	}
	for i := 0; set.maxBytes > 0; i++ {
		if st = s.log.State(); st.Bytes <= set.maxBytes || st.Messages == 0 {
			break
		}
		if err := s.trimBytes(set.maxBytes, st.FirstSeq, i >= trimSingly); err != nil {
			s.head.trimDue = true
			break
		}
		removed = true
	}
	if removed {
		s.removed()
	}
}

// trimSingly is how many messages a limit on bytes pushes out one by one. If it takes more, they go at once: a large
// message can push out very many, a change of the limit nearly all.
const trimSingly = 4

// trimBytes removes the first message, or all that must go so that the others take no more than most.
func (s *Stream) trimBytes(most, first uint64, all bool) (err error) { //nolint:revive // two modes of one thing
	upTo := first + 1
	if all {
		if upTo, err = s.log.Within(most); err != nil {
			return err
		}
	}
	_, err = s.log.Purge(nil, upTo, 0, nil)
	return err
}

// trimSubject applies the limit for each subject to one.
func (s *Stream) trimSubject(set *settings, subject []byte) {
	if set.maxPer == 0 {
		return
	}
	removed := false
	for {
		ks := s.key(subject)
		if ks.Count <= set.maxPer || !s.delete(ks.First) {
			break
		}
		removed = true
	}
	if removed {
		s.removed()
	}
}

// trimTurn is for how many subjects the limit for each is applied before others may have the stream.
const trimTurn = 256

// trimSubjects applies the limit for each subject to all, and then those of the whole stream, after a change of the
// configuration. Who publishes meanwhile does it for the subject of the message.
func (s *Stream) trimSubjects(set *settings) {
	over := s.overLimit(set.maxPer, s.upkeep.quitting)
	left := s.trimInTurns(set, append(over, s.overLimitRecently(set.maxPer)...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upkeep.stopped || s.head.closed {
		return
	}
	if len(left) > 0 {
		s.upkeep.running.Go(func() { s.trimUntilDone(set, left) })
	}
	s.trim(set)
}

// trimInTurns applies the limit for each subject to some, and returns those left when the log takes no more. It stops
// when the settings are not set any more: who changed them sees to all subjects.
func (s *Stream) trimInTurns(set *settings, subjects [][]byte) (left [][]byte) {
	turn := func(some [][]byte) (goOn bool, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.head.closed || s.settings.Load() != set {
			return false, nil
		}
		return true, s.trimEach(set, some)
	}
	for len(subjects) > 0 {
		n := min(trimTurn, len(subjects))
		switch goOn, err := turn(subjects[:n]); {
		case err != nil:
			return subjects
		case !goOn:
			return nil
		}
		subjects = subjects[n:]
	}
	return nil
}

// trimUntilDone is trimInTurns, again and again until nothing is left or the stream stops.
func (s *Stream) trimUntilDone(set *settings, subjects [][]byte) {
	for subjects = s.trimInTurns(set, subjects); len(subjects) > 0; subjects = s.trimInTurns(set, subjects) {
		t := time.NewTimer(retryTick)
		select {
		case <-t.C:
		case <-s.upkeep.quit:
			t.Stop()
			return
		}
	}
}

// overLimit returns the subjects of which more than most messages are visible. It reads the keys of all parts.
func (s *Stream) overLimit(most uint64, stop func() bool) (over [][]byte) {
	s.log.EachKey(nil, func(key []byte, ks storage.KeyState) bool {
		if ks.Count > most {
			over = append(over, append([]byte(nil), key...))
		}
		return !stop()
	})
	return over
}

// overLimitRecently returns the subjects of which there are more than most messages, among those of what is not sealed.
func (s *Stream) overLimitRecently(most uint64) (over [][]byte) {
	for _, key := range s.log.UnsealedKeys() {
		if s.log.Key(key).Count > most {
			over = append(over, key)
		}
	}
	return over
}

// trimEach applies the limit for each subject to some.
func (s *Stream) trimEach(set *settings, subjects [][]byte) (err error) {
	for _, subject := range subjects {
		if _, err = s.log.Purge(exactly(subject), 0, set.maxPer, nil); err != nil {
			break
		}
	}
	if len(subjects) > 0 {
		s.removed()
	}
	return err
}

// trimRecovered applies the limits after a crash, which may have come between a message and what it pushed out. For the
// subjects of what is sealed that is done behind the scenes, where a change of the limits may have been cut short, or a
// deletion was owed: a start must not take as long as there are subjects.
func (s *Stream) trimRecovered(set *settings) {
	if set.maxPer > 0 {
		_ = s.trimEach(set, s.overLimitRecently(set.maxPer)) // what is left of them is visible when trimSealed looks
		s.upkeep.running.Add(1)
		go s.trimSealed(set)
	}
	s.head.trimDue = set.evicts()
	s.trim(set)
}

// trimSealed applies the limit for each subject to all, at most two streams at a time.
func (s *Stream) trimSealed(set *settings) {
	defer s.upkeep.running.Done()
	loadSlots <- struct{}{}
	defer func() { <-loadSlots }()
	s.trimUntilDone(set, s.overLimit(set.maxPer, s.upkeep.quitting))
}

// rollUp removes what came before the newest message: of its subject, or of the stream. The newest keep are kept.
func (s *Stream) rollUp(kind rollupKind, subject []byte, keep uint64) {
	var err error
	switch kind {
	case rollupNone:
		return
	case rollupSubject:
		_, err = s.log.Purge(exactly(subject), 0, keep, nil)
	case rollupAll:
		_, err = s.log.Purge(nil, 0, keep, nil)
	}
	if err == nil {
		s.removed()
	}
}

// rollsUpAtOnce returns the rollup if it can be in one group with its message, so that a crash does not come between
// them. It cannot where limits, which come first, may push messages out, nor with what a source brings.
func (c *settings) rollsUpAtOnce(in *incoming, kind rollupKind) rollupKind {
	if in.by != nil || kind == rollupSubject && c.evicts() {
		return rollupNone
	}
	return kind
}

// addRollup adds to the group of a message what its rollup removes.
func (s *Stream) addRollup(group *storage.Batch, kind rollupKind, subject []byte) {
	switch kind {
	case rollupNone:
	case rollupSubject:
		group.Purge(s.log, exactly(subject), 1)
	case rollupAll:
		group.Purge(s.log, nil, 1)
	}
}

// exactly is the filter of one subject.
type exactly []byte

func (e exactly) Match(key []byte) bool { return string(key) == string(e) }
func (e exactly) Prefix() []byte        { return e }
func (e exactly) Literal() bool         { return true }

// delete removes one message from the log and reports whether it was there.
func (s *Stream) delete(seq uint64) bool {
	s.head.one[0] = seq
	n, err := s.log.Delete(s.head.one[:], false, nil)
	return err == nil && n > 0
}

// remove deletes a message that has to go; if the log cannot take it now, it is tried again later.
func (s *Stream) remove(seq uint64) {
	s.head.one[0] = seq
	if _, err := s.log.Delete(s.head.one[:], false, nil); err != nil {
		if len(s.head.owed) < maxOwed {
			s.head.owed = append(s.head.owed, seq)
			s.upkeepSoon()
		}
		return
	}
	s.giveBack()
}

// maxOwed bounds the deletions that wait for room in the log. What is beyond is found again by Reconcile.
const maxOwed = 1 << 20

// retryOwed deletes what the log could not take before.
func (s *Stream) retryOwed() {
	if len(s.head.owed) == 0 {
		return
	}
	if _, err := s.log.Delete(s.head.owed, false, nil); err != nil {
		s.upkeepSoon()
		return
	}
	s.head.owed = nil
	s.giveBack()
}
