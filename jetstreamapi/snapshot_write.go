package jetstreamapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
	"github.com/noetl/ehdb-gateway/storage"
)

var errStreamGone = errors.New("stream was deleted while its snapshot was taken")

// write writes the backup of what the stream's state counts, compressed, to w. Messages that are deleted meanwhile may
// be missing; those that come meanwhile are left out.
func (s *snapshot) write(w io.Writer) error {
	// One block at a time, on this goroutine: an error of w ends the walk at once, and memory is bounded.
	enc := s2.NewWriter(w, s2.WriterConcurrency(1))
	aw := archive.NewWriter(enc)
	err := s.writeAssets(aw)
	if err == nil {
		err = s.writeMessages(aw)
	}
	if err == nil {
		err = aw.End()
	}
	if err != nil {
		return err
	}
	return enc.Close()
}

// writeAssets writes the state and the consumers, which come before the messages they are about.
func (s *snapshot) writeAssets(w *archive.Writer) error {
	now := time.Now().UnixNano()
	var consumers []*consumerEntry
	if !s.req.NoConsumers {
		consumers = s.e.acc.sortedConsumers(s.e)
		for _, c := range consumers {
			if c.offline != nil {
				return fmt.Errorf("consumer %s is offline: %w", c.name, c.offline)
			}
		}
	}
	state := s.state
	state.Consumers = len(consumers)
	if err := addJSON(w, archive.StateName, now, &state); err != nil {
		return err
	}
	for _, c := range consumers {
		cfg := *c.config()
		cfg.Name = c.name
		exact := c.consumer.State()
		form := exact.NATS(&cfg, s.state.LastSeq, now)
		both := server.SnapshotConsumerState{ConsumerConfig: &cfg, ConsumerState: &form}
		if err := addJSON(w, archive.ConsumerPrefix+c.name, now, &both); err != nil {
			return err
		}
	}
	return nil
}

func addJSON(w *archive.Writer, name string, now int64, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return w.Add([]byte(name), now, 0, nil, b)
}

func (s *snapshot) writeMessages(w *archive.Writer) error {
	cursor := s.e.log.NewCursor(s.state.FirstSeq, nil)
	for {
		m, err := cursor.Next()
		switch {
		case errors.Is(err, storage.ErrEOF) || err == nil && m.Seq > s.state.LastSeq:
			if !s.e.live() {
				return errStreamGone
			}
			return nil
		case err != nil:
			return fmt.Errorf("a message could not be read: %w", err)
		}
		if err := w.Add(m.Key, m.Time, m.Seq, m.Header, m.Data); err != nil {
			return err
		}
	}
}

// live reports whether the account still has this incarnation of the stream.
func (e *streamEntry) live() bool {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	return e.acc.streams[e.name] == e
}
