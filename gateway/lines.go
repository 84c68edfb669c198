package gateway

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The bounds of what clients can make the log say: lines in a second, and lines at once after a quiet time.
const (
	linesPerSecond   = 200
	linesAtOnce      = 500
	clientPerSecond  = 10 // of one connection
	clientLinesBurst = 20
	// leftOutAfter is how long after the first line that was left out the log says how many were.
	leftOutAfter = time.Second
	// maxQuoted is how many bytes of what a client sent a line shows.
	maxQuoted = 512
)

// lines bounds the lines of the log that clients cause. Who breaks a rule in a loop, or comes back in a loop, could
// fill the disk otherwise. What is left out is counted, and the log says so.
type lines struct {
	log     *slog.Logger
	allowed *rate.Limiter

	mu      sync.Mutex
	leftOut int
	report  *time.Timer // runs while leftOut > 0
}

func newLines(log *slog.Logger) *lines {
	return &lines{log: log, allowed: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// allow reports whether a line may be written. own, if not nil, bounds those of one connection.
func (l *lines) allow(own *rate.Limiter) bool {
	if (own == nil || own.Allow()) && l.allowed.Allow() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leftOut++; l.leftOut == 1 {
		l.report = time.AfterFunc(leftOutAfter, l.flush)
	}
	return false
}

// flush says how many lines were left out.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leftOut > 0 {
		stopTimer(l.report)
		l.log.Warn("{count} log lines about clients were left out: "+
			"more than {limit} a second, or {own} about one client",
			slog.Int("count", l.leftOut), slog.Int("limit", linesPerSecond), slog.Int("own", clientPerSecond))
		l.leftOut = 0
	}
}
