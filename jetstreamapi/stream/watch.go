package stream

import (
	"slices"
	"sync"
)

// watcher is who reads the stream beside its consumers.
type watcher struct{ wake func(err error) }

// Watch has wake called whenever new messages are visible (nil), and with an error once the stream takes and gives
// nothing more: it was stopped, or its directory failed. wake runs on the log's ack loop, or where the stream is
// stopped: it must be quick, must not block and must not call the stream. Who watches does not count as interested.
func (s *Stream) Watch(wake func(err error)) (stop func()) {
	w := &watcher{wake: wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed := s.answers.failed; failed != nil {
		wake(failed)
		return func() {}
	}
	s.setWatchers(func(old []*watcher) []*watcher { return append(old, w) })
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setWatchers(func(old []*watcher) []*watcher {
			return slices.DeleteFunc(old, func(x *watcher) bool { return x == w })
		})
	})
}

// setWatchers replaces the list of those who watch by what change makes of a copy. The stream's lock is held.
func (s *Stream) setWatchers(change func([]*watcher) []*watcher) {
	var old []*watcher
	if list := s.watchers.Load(); list != nil {
		old = slices.Clone(*list)
	}
	list := change(old)
	s.watchers.Store(&list)
}

// tellWatchers calls those who watch.
func (s *Stream) tellWatchers(err error) {
	if list := s.watchers.Load(); list != nil {
		for _, w := range *list {
			w.wake(err)
		}
	}
}
