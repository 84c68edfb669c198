package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

const (
	followEvery = time.Second
	// followPause is between what a client asks for and looking what became of it.
	followPause = 50 * time.Millisecond
)

// follow keeps the servers' stream near the one here in all that is no message: its configuration, and its consumers.
func (e *Engine) follow(ctx context.Context, s *stream, h *authority) {
	t := time.NewTicker(followEvery)
	defer t.Stop()
	for {
		if err := e.bring(ctx, s, h); err != nil && ctx.Err() == nil {
			e.o.Logger.Warn("Stream {stream} upstream could not be kept near the one here: {error}",
				slog.String("stream", s.name.String()), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.nudge:
			_ = sleep(ctx, followPause)
		case <-t.C:
		}
	}
}

// bring brings the servers' stream near the one here, once.
func (e *Engine) bring(ctx context.Context, s *stream, h *authority) error {
	return errors.Join(e.bringConfig(ctx, s), h.ghosts.Sync(ctx))
}

// bringConfig gives the servers' stream the configuration that it has here. What it stores is routed here before the
// servers store it, too.
func (e *Engine) bringConfig(ctx context.Context, s *stream) error {
	cfg := s.copy.Config()
	if cfg.Name == "" {
		return fmt.Errorf("%w: %s", cutover.ErrNoStream, s.name)
	}
	e.mu.Lock()
	moved := s.configured(cfg)
	e.mu.Unlock()
	if s.setDeliver(e) || moved {
		if err := errors.Join(e.route(), e.barrier(ctx)); err != nil {
			return err
		}
	}
	changed, err := reverse.BringConfig(ctx, s.site.Conn(), cfg, s.up)
	if err == nil && len(changed) > 0 {
		e.o.Logger.Info("Stream {stream} upstream has got the configuration it has here: {changed}",
			slog.String("stream", s.name.String()), slog.Any("changed", changed))
	}
	return err
}
