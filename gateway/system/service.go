// Package system serves the system account: the requests below $SYS.REQ that tools ask servers and accounts with, and
// the events below $SYS.
package system

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Options make a Service.
type Options struct {
	Bus     *bus.Router
	Account string // the system account
	Gateway *gateway.Server
	Monitor *monitor.Server
	// Identity is the server as answers and events name it; number and time are filled in.
	Identity func() server.ServerInfo
	Reload   func() error
	Logger   *slog.Logger
}

// maxJobs is how many requests and events wait. Beyond, who asks is slowed down, and events are lost and counted.
const maxJobs = 1024

// Service answers the requests and sends the events, all from one goroutine.
type Service struct {
	o        Options
	sequence atomic.Uint64
	lost     atomic.Uint64 // events

	session bus.Session            // hears the requests
	out     bus.Session            // answers and events
	abroad  map[string]bus.Session // for other accounts, by name; the goroutine's
	done    sync.WaitGroup
	ended   chan struct{} // closed when the service stops
	profile chan struct{} // one profile at a time

	mu      sync.Mutex
	work    sync.Cond
	jobs    []func()
	stall   chan struct{}
	changed map[string]bool // accounts whose connections changed
	stopped bool
}

// New returns a Service that hears nothing yet, but takes events.
func New(o Options) *Service {
	s := &Service{
		o: o, profile: make(chan struct{}, 1), ended: make(chan struct{}),
		abroad: map[string]bus.Session{}, changed: map[string]bool{},
	}
	s.work.L = &s.mu
	return s
}

// Start serves until Stop.
func (s *Service) Start() error {
	id := bus.Identity{Account: s.o.Account}
	var err error
	if s.out, err = s.o.Bus.Open(bus.KindService, id, nil); err != nil {
		return err
	}
	if s.session, err = s.o.Bus.Open(bus.KindService, id, s); err != nil {
		return err
	}
	for _, filter := range s.filters() {
		if _, err := s.session.Subscribe(filter, filter, ""); err != nil {
			return err
		}
	}
	s.done.Go(s.run)
	s.done.Go(s.tick)
	return nil
}

// Stop says that the server goes and ends the service. Call it once, after Start.
func (s *Service) Stop() {
	s.session.Close()
	s.event("$SYS.SERVER."+s.id()+".SHUTDOWN", func() any { info := s.info(); return &info })
	close(s.ended)
	s.mu.Lock()
	s.stopped = true
	s.work.Broadcast()
	s.release()
	s.mu.Unlock()
	s.done.Wait()
	s.out.Close()
	for _, session := range s.abroad {
		session.Close()
	}
}

func (s *Service) id() string { return s.o.Identity().ID }

// info is the server as one message names it.
func (s *Service) info() server.ServerInfo {
	info := s.o.Identity()
	info.Seq, info.Time = s.sequence.Add(1), time.Now().UTC()
	if info.JetStream {
		info.SetJetStreamEnabled()
		info.SetBinaryStreamSnapshot()
		info.SetAccountNRG()
	}
	return info
}

// Deliver implements bus.Sink.
func (s *Service) Deliver(batch []bus.Delivery) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		m := &batch[i].Msg
		r := &request{
			s: s, subject: string(m.Subject), reply: string(m.Reply),
			header: bytes.Clone(m.Header), body: bytes.Clone(m.Data),
		}
		s.jobs = append(s.jobs, r.serve)
	}
	s.work.Signal()
	if len(s.jobs) < maxJobs || s.stopped {
		return nil
	}
	if s.stall == nil {
		s.stall = make(chan struct{})
	}
	return s.stall
}

// release ends the pause of those who ask. s.mu is held.
func (s *Service) release() {
	if s.stall != nil {
		close(s.stall)
		s.stall = nil
	}
}

// push queues a job that may be lost.
func (s *Service) push(job func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) >= maxJobs || s.stopped {
		s.lost.Add(1)
		return
	}
	s.jobs = append(s.jobs, job)
	s.work.Signal()
}

// run does the jobs. What is queued when the service stops is still done.
func (s *Service) run() {
	for {
		s.mu.Lock()
		for len(s.jobs) == 0 && !s.stopped {
			s.work.Wait()
		}
		todo := s.jobs
		s.jobs = nil
		s.release()
		s.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, job := range todo {
			job()
		}
	}
}

// publish sends a message in the system account.
func (s *Service) publish(subject string, header, data []byte) {
	s.out.Publish(&bus.Msg{Subject: []byte(subject), Header: header, Data: data})
	_ = s.out.Flush() // nothing is asked to wait for who is behind with events
}

// event sends what message returns, if anybody listens. It may be lost.
func (s *Service) event(subject string, message func() any) { s.eventIn(s.o.Account, subject, message) }

// eventIn is event in any account.
func (s *Service) eventIn(account, subject string, message func() any) {
	if !s.o.Bus.HasInterest(account, subject) {
		return
	}
	s.push(func() {
		b, err := json.Marshal(message())
		if err != nil {
			s.o.Logger.Error("an event could not be encoded", slog.String("subject", subject), slog.Any("error", err))
			return
		}
		if account == s.o.Account {
			s.publish(subject, nil, b)
			return
		}
		s.publishIn(account, subject, b)
	})
}

// typed is the head of an event.
func typed(kind string) server.TypedEvent {
	return server.TypedEvent{Type: kind, ID: nuid.Next(), Time: time.Now().UTC()}
}

// token returns token i of a subject; empty if there are not as many.
func token(subject string, i int) string {
	tokens := strings.Split(subject, ".")
	if i >= len(tokens) {
		return ""
	}
	return tokens[i]
}
