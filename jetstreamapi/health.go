package jetstreamapi

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Health returns what keeps JetStream, or some asset, from serving: nothing when all is well. An account, a stream of
// it and a consumer of that can be named to ask about them alone ("": all); one that does not exist is an error, too.
func (s *Service) Health(accountName, streamName, consumerName string) []server.HealthzError {
	out := s.filesHealth()
	accounts := s.sortedAccounts()
	if accountName != "" {
		a := s.account(accountName)
		if a == nil {
			return append(out, server.HealthzError{
				Type: server.HealthzErrorAccount, Account: accountName,
				Error: fmt.Sprintf("JetStream account %q not found", accountName),
			})
		}
		accounts = []*account{a}
	}
	for _, a := range accounts {
		out = append(out, a.health(streamName, consumerName)...)
	}
	return out
}

// filesHealth tells what is wrong with the data directory as a whole.
func (s *Service) filesHealth() []server.HealthzError {
	s.files.mu.RLock()
	err, st := s.files.err, s.files.store
	s.files.mu.RUnlock()
	if err == nil && st != nil {
		err = st.Err()
	}
	if err == nil {
		return nil
	}
	return []server.HealthzError{{Type: server.HealthzErrorJetStream, Error: err.Error()}}
}

func (a *account) health(streamName, consumerName string) []server.HealthzError {
	if streamName == "" {
		var out []server.HealthzError
		for _, e := range a.sortedStreams("") {
			out = append(out, e.health("")...)
		}
		return out
	}
	a.mu.RLock()
	e := a.streams[streamName]
	a.mu.RUnlock()
	if e == nil {
		return []server.HealthzError{{
			Type: server.HealthzErrorStream, Account: a.name, Stream: streamName,
			Error: server.NewJSStreamNotFoundError().Description,
		}}
	}
	return e.health(consumerName)
}

func (e *streamEntry) health(consumerName string) []server.HealthzError {
	bad := server.HealthzError{Type: server.HealthzErrorStream, Account: e.acc.name, Stream: e.name}
	if e.offline != nil {
		bad.Error = e.offline.Error()
		return []server.HealthzError{bad}
	}
	bad.Type = server.HealthzErrorConsumer
	var out []server.HealthzError
	found := false
	for _, c := range e.acc.sortedConsumers(e) {
		if consumerName != "" && c.name != consumerName {
			continue
		}
		found = true
		if c.offline != nil {
			bad.Consumer, bad.Error = c.name, c.offline.Error()
			out = append(out, bad)
		}
	}
	if consumerName != "" && !found {
		bad.Consumer, bad.Error = consumerName, server.NewJSConsumerNotFoundError().Description
		out = append(out, bad)
	}
	return out
}
