package stream

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// Letter is a message that another part of the server stores in the stream under a subject of its choice.
type Letter struct{ Subject, Header, Data []byte }

var errUnwanted = errors.New("no consumer of it wants the subject, so that it would not be kept")

// AddLetters stores letters, all or none, in one group with what commit adds to it; commit has to commit the group. It
// is called under the stream's lock. The stream's limits hold, with one exception: a stream that would let a letter go
// at once refuses it. An error means that nothing was stored.
func (s *Stream) AddLetters(letters []Letter, commit func(*storage.Batch) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head.closed {
		return errStopped
	}
	set, now := s.settings.Load(), s.stamp()
	list, err := s.checkLetters(set, letters, now)
	if err != nil {
		return err
	}
	var size uint64
	for i := range list {
		list[i].placed.size = set.size(&list[i].in)
		size += list[i].placed.size
	}
	if err := s.reserve(size); err != nil {
		return err
	}
	if err := s.appendAtomic(set, list, now, commit); err != nil {
		s.release(size)
		return err
	}
	for i := range list {
		s.placeAtomic(set, &list[i], now)
	}
	s.trim(set)
	return nil
}

func (s *Stream) checkLetters(set *settings, letters []Letter, now int64) ([]checkedMessage, error) {
	d := newStaged(s)
	list := make([]checkedMessage, len(letters))
	for i, l := range letters {
		in := &list[i].in
		*in = incoming{subject: set.mapped(l.Subject), header: l.Header, data: l.Data, now: now}
		in.named.Parse(in.header)
		if err := set.checkForm(in); err != nil {
			return nil, err
		}
		if err := set.checkFullBatched(d, in); err != nil {
			return nil, server.NewJSStreamStoreFailedError(err)
		}
		if set.unwanted(s, in) {
			return nil, fmt.Errorf("stream %s has interest retention, and %w", set.cfg.Name, errUnwanted)
		}
		d.add(set, in)
	}
	return list, nil
}
