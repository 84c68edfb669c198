package logging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// jsonSink writes one JSON object for each record.
type jsonSink struct {
	h slog.Handler
	c io.Closer
}

func newJSONSink(w io.WriteCloser) jsonSink {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: LevelTrace,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			level, ok := a.Value.Any().(slog.Level)
			if len(groups) > 0 || a.Key != slog.LevelKey || !ok {
				return a
			}
			if level <= LevelTrace {
				a.Value = slog.StringValue("TRACE")
			}
			return a
		},
	})
	return jsonSink{h: h.WithAttrs([]slog.Attr{slog.Int("pid", os.Getpid())}), c: w}
}

// write fills the places of the message, which people read in a log viewer, and keeps every attribute, which machines
// read.
func (s jsonSink) write(ctx context.Context, r slog.Record) error {
	r.Message, _ = message(r)
	return s.h.Handle(ctx, r)
}

func (s jsonSink) Close() error { return s.c.Close() }

// keepOpen is a writer whose Close leaves it open.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// rotating is a file that is renamed and begun anew when it has grown over limit.
type rotating struct {
	mu      sync.Mutex
	f       *os.File
	limit   int64
	keep    int64 // files, the current one included; 0: all
	written int64
}

func (r *rotating) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.f.Write(p)
	r.written += int64(n)
	if err != nil || r.limit <= 0 || r.written <= r.limit {
		return n, err
	}
	return n, r.rotate()
}

func (r *rotating) rotate() error {
	name := r.f.Name()
	if err := os.Rename(name, name+time.Now().Format(".2006.01.02.15.04.05.000000000")); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	old := r.f
	r.f, r.written = f, 0
	return errors.Join(old.Close(), r.prune())
}

// prune removes the oldest of the files that were renamed: their names end with when.
func (r *rotating) prune() error {
	if r.keep <= 0 {
		return nil
	}
	old, err := filepath.Glob(r.f.Name() + ".[0-9][0-9][0-9][0-9].*") // sorted
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	var errs []error
	for len(old) > int(max(r.keep-1, 0)) {
		errs = append(errs, os.Remove(old[0]))
		old = old[1:]
	}
	return errors.Join(errs...)
}

func (r *rotating) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.f.Close()
}
