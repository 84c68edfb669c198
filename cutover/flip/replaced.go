package flip

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Clients may delete a stream that the gateway has the say about, and make another of that name. The servers are not
// told: theirs is what is left of the one that was taken over.

// replaced is why the stream here is not the one that was taken over any more; nil: it is.
func (e *Engine) replaced(s *stream) error {
	if _, ok := e.o.Local.Scopes()[s.name]; ok {
		return nil
	}
	fix := "Deletions of streams are not repeated on the servers: they still have the one that was taken over. To " +
		"have that again, and nothing of what is here: ehdbctl rollback --emergency " + s.name.Flag() + "; behind " +
		"that, it can be deleted as any other"
	if _, err := e.o.Local.Stream(s.name.Account, s.name.Stream); err != nil {
		return fmt.Errorf("%w: a client has deleted %s here. %s", cutover.ErrNoStream, s.name, fix)
	}
	return fmt.Errorf("%w: a client has deleted %s here and made another of that name. %s",
		cutover.ErrIncarnation, s.name, fix)
}

// standDown makes the stream here a standby. One that a client has put in its place is deleted, which only an emergency
// comes to: it would be in the way of the copy.
func (e *Engine) standDown(ctx context.Context, s *stream, m *Move) error {
	if e.replaced(s) == nil {
		return s.copy.SetRole(ctx, cutover.Standby)
	}
	if _, err := e.o.Local.Stream(s.name.Account, s.name.Stream); err != nil {
		return nil //nolint:nilerr // it is gone: there is nothing to delete
	}
	m.Lost = e.messages(s)
	return s.copy.Delete(ctx)
}

// messages is how many messages the stream here has.
func (e *Engine) messages(s *stream) uint64 {
	st, err := s.copy.State(e.ctx, false)
	if err != nil {
		return 0
	}
	return st.Msgs
}

// lookTime bounds how long a start waits for what the servers know of a stream that is gone here.
const lookTime = 2 * time.Second

// stored is the configuration of the stream here; if it is gone, that of the servers' stream, so that its subjects do
// not lead there.
func (e *Engine) stored(ctx context.Context, s *stream) server.StreamConfig {
	cfg := s.copy.Config()
	if cfg.Name != "" {
		return cfg
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if info, err := s.up.Info(ctx); err == nil {
		return info.Config
	}
	return cfg
}
