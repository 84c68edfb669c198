package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"

	"github.com/noetl/ehdb-gateway/internal/logging"
)

// wait acts on signals and returns when the server is to stop. An error is why it stops by itself.
func (a *app) wait(ctx context.Context, signals <-chan os.Signal) error {
	var drained chan struct{} // closed at the end of lame duck mode; nil: not in it
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.deposed:
			return err
		case <-drained:
			return nil
		case sig := <-signals:
			a.log.Info("Trapped {signal} signal", slog.String("signal", `"`+sig.String()+`"`))
			switch sig {
			case os.Interrupt:
				return nil
			case syscall.SIGTERM:
				// A server in lame duck mode is stopping already, as gently as it was told to.
				if drained == nil {
					return nil
				}
			case syscall.SIGUSR1:
				a.reopenLog()
			case syscall.SIGUSR2:
				if drained == nil {
					drained = make(chan struct{})
					go func(done chan struct{}) {
						a.gw.LameDuck()
						close(done)
					}(drained)
				}
			case syscall.SIGHUP:
				a.reloadAndLog()
			}
		}
	}
}

func (a *app) reloadAndLog() {
	if err := a.reload(); err != nil {
		a.log.Error("Failed to reload server configuration: {error}", slog.Any("error", err))
		return
	}
	a.log.Info("Reloaded server configuration ({digest})", slog.String("digest", a.cfg.Server.ConfigDigest()))
}

func (a *app) reopenLog() {
	switch err := a.log.Reopen(); {
	case errors.Is(err, logging.ErrNoFile):
		a.log.Info("File log re-open ignored, not a file logger")
	case err != nil:
		a.log.Error("File log could not be re-opened", slog.Any("error", err))
	default:
		a.log.Info("File log re-opened")
	}
}
