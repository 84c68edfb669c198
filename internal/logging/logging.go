package logging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/logger"
)

// LevelTrace is the level of the raw protocol, TRC.
const LevelTrace = slog.LevelDebug - 4

// Options configure a Logger as nats-server's flags and keys of the same names do.
type Options struct {
	File         string // empty: stderr
	SizeLimit    int64  // bytes after which File is rotated; 0: never
	MaxFiles     int64  // log files that are kept, the current one included; 0: all
	Time         bool   // timestamps
	UTC          bool
	Debug, Trace bool
	JSON         bool
	Syslog       bool
	RemoteSyslog string
}

// Logger is a slog.Logger whose file can be opened anew.
type Logger struct {
	*slog.Logger
	h *handler

	mu sync.Mutex // guards o
	o  Options
}

// New opens the log.
func New(o Options) (*Logger, error) {
	out, err := open(o)
	if err != nil {
		return nil, err
	}
	h := &handler{shared: &shared{out: out}}
	l := &Logger{Logger: slog.New(h), h: h, o: o}
	l.SetLevels(o.Debug, o.Trace)
	return l, nil
}

// SetLevels turns debug lines and the protocol on or off.
func (l *Logger) SetLevels(debug, trace bool) {
	l.h.shared.debug.Store(debug)
	l.h.shared.trace.Store(trace)
}

// ErrNoFile is returned by Reopen when the log is not a file.
var ErrNoFile = errors.New("not a file logger")

// Reopen opens the log file again by its name, after a tool has moved it away.
func (l *Logger) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.o.File == "" {
		return ErrNoFile
	}
	out, err := open(l.o)
	if err != nil {
		return err
	}
	return l.h.shared.swap(out).Close()
}

// Prepared is a log that a Logger can go on with.
type Prepared struct {
	l   *Logger
	o   Options
	out sink
}

// Prepare opens another log for the Logger. Levels stay as they are.
func (l *Logger) Prepare(o Options) (*Prepared, error) {
	out, err := open(o)
	if err != nil {
		return nil, err
	}
	return &Prepared{l, o, out}, nil
}

// Use has lines go to p from now on, and closes the log before it.
func (p *Prepared) Use() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.l.o = p.o
	return p.l.h.shared.swap(p.out).Close()
}

// Discard closes p unused.
func (p *Prepared) Discard() error { return p.out.Close() }

// Close closes the log file. Nothing may be logged after it.
func (l *Logger) Close() error { return l.h.shared.swap(nothing{}).Close() }

// sink writes one record.
type sink interface {
	write(ctx context.Context, r slog.Record) error
	io.Closer
}

type nothing struct{}

func (nothing) write(context.Context, slog.Record) error { return nil }
func (nothing) Close() error                             { return nil }

func open(o Options) (sink, error) {
	if o.File != "" {
		// nats-server's logger ends the process when it cannot open its file, so see first.
		f, err := os.OpenFile(o.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
		if o.JSON {
			st, err := f.Stat()
			if err != nil {
				return nil, fmt.Errorf("log file: %w", err)
			}
			return newJSONSink(&rotating{f: f, limit: o.SizeLimit, keep: o.MaxFiles, written: st.Size()}), nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
	}
	switch {
	case o.JSON && (o.Syslog || o.RemoteSyslog != ""):
		return nil, errors.New("ehdb.log_format json does not go with syslog")
	case o.JSON:
		return newJSONSink(keepOpen{os.Stderr}), nil
	case o.File != "":
		l := logger.NewFileLogger(o.File, o.Time, true, true, true, logger.LogUTC(o.UTC))
		return textSink{l}, limited(l, o)
	case o.RemoteSyslog != "":
		return textSink{logger.NewRemoteSysLogger(o.RemoteSyslog, true, true)}, nil
	case o.Syslog:
		return textSink{logger.NewSysLogger(true, true)}, nil
	}
	utc := logger.LogUTC(o.UTC)
	return textSink{logger.NewStdLogger(o.Time, true, true, isTerminal(os.Stderr), true, utc)}, nil
}

func limited(l *logger.Logger, o Options) error {
	if o.SizeLimit > 0 {
		if err := l.SetSizeLimit(o.SizeLimit); err != nil {
			return err
		}
	}
	if n := int(o.MaxFiles); n > 0 && int64(n) == o.MaxFiles {
		return l.SetMaxNumFiles(n)
	}
	return nil
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// shared is what all loggers derived from one have in common.
type shared struct {
	debug, trace atomic.Bool

	mu  sync.RWMutex // a Reopen waits for records on their way to the old file
	out sink
}

func (s *shared) swap(out sink) (old sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.out = s.out, out
	return old
}

// handler implements slog.Handler.
type handler struct {
	shared *shared
	attrs  []slog.Attr
	group  string // prefix of attribute names, with its dot
}

// Enabled implements slog.Handler. As in nats-server, tracing without -D shows no debug lines.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool {
	switch {
	case l >= slog.LevelInfo:
		return true
	case l >= slog.LevelDebug:
		return h.shared.debug.Load()
	}
	return h.shared.trace.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	full := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	full.AddAttrs(h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		full.AddAttrs(h.named(a))
		return true
	})
	h.shared.mu.RLock()
	defer h.shared.mu.RUnlock()
	return h.shared.out.write(ctx, full)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		c.attrs = append(c.attrs, h.named(a))
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

func (h *handler) named(a slog.Attr) slog.Attr {
	return slog.Attr{Key: h.group + a.Key, Value: a.Value.Resolve()}
}
