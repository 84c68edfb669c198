package jetstreamapi

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// overloadEvery is how often it is told that API requests were refused because too many waited.
const overloadEvery = time.Second

// tellOverload tells the log, and who listens in the system account, of requests that found their queue full.
func (s *Service) tellOverload() {
	tick := time.NewTicker(overloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-tick.C:
		}
		if n := s.refused.Swap(0); n > 0 {
			s.log.Warn("API requests were refused: too many wait", slog.Int64("requests", n))
			s.adviseOverload(n)
		}
	}
}

func (s *Service) adviseOverload(refused int64) {
	if s.opts.System == "" || !s.opts.Bus.HasInterest(s.opts.System, server.JSAdvisoryAPILimitReached) {
		return
	}
	out, err := newPublisher(s.opts.Bus, s.opts.System)
	if err != nil {
		s.log.Warn("an advisory could not be sent", slog.Any("error", err))
		return
	}
	defer out.close()
	b, err := json.Marshal(&server.JSAPILimitReachedAdvisory{
		TypedEvent: typedEvent(server.JSAPILimitReachedAdvisoryType),
		Server:     s.opts.ServerName, Domain: s.opts.Domain, Dropped: refused,
	})
	if err != nil { // strings and numbers always marshal
		panic("jetstreamapi: marshal advisory: " + err.Error())
	}
	out.send(server.JSAdvisoryAPILimitReached, nil, b)
	out.flush()
}
