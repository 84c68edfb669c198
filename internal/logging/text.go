package logging

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
)

// natsLogger is what nats-server's loggers (standard error, file, syslog) have in common.
type natsLogger interface {
	Noticef(format string, v ...any)
	Warnf(format string, v ...any)
	Errorf(format string, v ...any)
	Debugf(format string, v ...any)
	Tracef(format string, v ...any)
}

// textSink writes nats-server's lines.
type textSink struct{ l natsLogger }

func (s textSink) write(_ context.Context, r slog.Record) error {
	line := render(r)
	switch {
	case r.Level <= LevelTrace:
		s.l.Tracef("%s", line)
	case r.Level < slog.LevelInfo:
		s.l.Debugf("%s", line)
	case r.Level < slog.LevelWarn:
		s.l.Noticef("%s", line)
	case r.Level < slog.LevelError:
		s.l.Warnf("%s", line)
	default: // their Fatalf would end the process here, which is for main to do
		s.l.Errorf("%s", line)
	}
	return nil
}

func (s textSink) Close() error {
	if c, ok := s.l.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// render is the message with its places filled, and the attributes it does not name behind it.
func render(r slog.Record) string {
	line, rest := message(r)
	if len(rest) > 0 {
		line += " " + strings.Join(rest, " ")
	}
	return line
}

// message is the message with its places filled, and the attributes it does not name as key=value.
func message(r slog.Record) (msg string, rest []string) {
	values := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		flatten(a, func(key, val string) {
			if strings.Contains(r.Message, "{"+key+"}") {
				values["{"+key+"}"] = oneLine(val)
			} else {
				rest = append(rest, key+"="+quoted(val))
			}
		})
		return true
	})
	return fill(r.Message, values), rest
}

func flatten(a slog.Attr, fn func(key, val string)) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		fn(a.Key, v.String())
		return
	}
	for _, m := range v.Group() {
		flatten(slog.Attr{Key: a.Key + "." + m.Key, Value: m.Value}, fn)
	}
}

// fill replaces the places of msg from left to right; what a value holds is never taken for a place.
func fill(msg string, values map[string]string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(msg, '{')
		length := strings.IndexByte(msg[open+1:], '}')
		if open < 0 || length < 0 {
			b.WriteString(msg)
			return b.String()
		}
		end := open + 1 + length + 1
		val, ok := values[msg[open:end]]
		if !ok {
			val = msg[open:end]
		}
		b.WriteString(msg[:open])
		b.WriteString(val)
		msg = msg[end:]
	}
}

// quoted is val as it can stand after key=.
func quoted(val string) string {
	if val == "" || strings.ContainsFunc(val, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' || r == '='
	}) {
		return strconv.Quote(val)
	}
	return val
}

// oneLine keeps a value, which may come from a client, from starting a line of its own or steering a terminal.
func oneLine(val string) string {
	if strings.ContainsFunc(val, func(r rune) bool { return !unicode.IsPrint(r) && r != ' ' }) {
		return strconv.Quote(val)
	}
	return val
}
