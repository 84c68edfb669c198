package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// forced are the gates that a demo of a minute cannot fill.
var forced = map[string]string{
	"G5": "a demo", "G6": "the machine is shared with the load", "G7": "API answers are not compared",
	"G10": "a demo", "G11": "latency is not compared before the flip", "G12": "comes below", "G13": "a demo",
	"G14": "a demo", "G17": "message ids are younger than the window", "G18": "a demo", "G20": "a demo",
	"G22": "a demo",
}

func (s *site) flipAll(ctx context.Context) error { return s.moveAll(ctx, "/flip", "ehdb") }

func (s *site) rollbackAll(ctx context.Context) error { return s.moveAll(ctx, "/rollback", "nats") }

// moveAll moves every stream, again until it succeeds: gates may still have to fill.
func (s *site) moveAll(ctx context.Context, verb, to string) error {
	for _, name := range streams {
		for _, v := range s.victims() {
			if err := s.interrupt(ctx, verb, to, name, v); err != nil {
				return err
			}
		}
		if err := await(ctx, verb+" of "+name, func() error { return s.move(ctx, verb, to, name) }); err != nil {
			return err
		}
	}
	return nil
}

// move moves a stream, if it is not there yet.
func (s *site) move(ctx context.Context, verb, to, name string) error {
	if len(s.victims()) > 0 { // a move that was recorded before the kill has been made
		var st face.Status
		if err := s.call(ctx, http.MethodGet, face.Base+"/status", nil, &st); err != nil {
			return err
		}
		if slices.ContainsFunc(st.Streams, func(x face.StreamState) bool {
			return x.Scope.Stream == name && x.Authority == to
		}) {
			s.say("            %-12s -> %-4s before the kill", name, to)
			return nil
		}
	}
	ask := map[string]any{"by": "demo", "reason": "a demo", "scope": "$G/" + name}
	if to == "ehdb" {
		ask["retries"], ask["force"] = 5, forced
	}
	var m face.Move
	if err := s.call(ctx, http.MethodPost, face.Base+verb, ask, &m); err != nil {
		return err
	}
	s.fences = append(s.fences, m.Fence)
	s.say("            %-12s -> %-4s held %4.0f ms, lost %d, twice at most %d",
		name, to, m.Fence*1000, m.Lost, m.Duplicates) //nolint:mnd // milliseconds
	return nil
}

// victim is a process that is killed while a stream is moved.
type victim struct {
	name string
	kill func(context.Context) error
}

func (s *site) victims() (v []victim) {
	if s.o.killMoves {
		v = append(v, victim{"gateway", s.kill})
	}
	if s.o.killNATS {
		v = append(v, victim{"nats-server", s.killNATS})
	}
	return v
}

// interrupt begins to move a stream, if it is not there yet, and kills a process at some moment of it.
func (s *site) interrupt(ctx context.Context, verb, to, name string, v victim) error {
	if err := await(ctx, verb+" of "+name, func() error { return s.ready(ctx, name, to) }); err != nil {
		return err
	}
	s.calm()
	const longest = 700 // milliseconds that a move takes, about
	after := time.Duration(rand.IntN(longest)) * time.Millisecond
	var moved sync.WaitGroup
	moved.Go(func() { _ = s.move(ctx, verb, to, name) }) // it fails, or was quicker
	time.Sleep(after)
	s.say("            %-12s SIGKILL of the %s after %v", name, v.name, after)
	err := v.kill(ctx)
	moved.Wait()
	s.moveKills++
	s.calm()
	return err
}

// calm waits until the publishers know what became of what they had sent at the last kill. Ids of messages
// that were removed are not known behind a restart, here as on the servers: a publish that is tried again behind the
// next one, or behind a move, is a new message.
func (s *site) calm() { time.Sleep(time.Until(s.killed.Add(publishTime + time.Second))) }

// ready reports whether the gates let a stream be moved.
func (s *site) ready(ctx context.Context, name, to string) error {
	if to == "nats" {
		return nil
	}
	var r gate.Report
	if err := s.call(ctx, http.MethodGet, face.Base+"/gates?scope="+url.QueryEscape("$G/"+name), nil, &r); err != nil {
		return err
	}
	for _, g := range r.Gates {
		if forced[g.ID] == "" && g.State != gate.Pass && g.State != gate.NotApplicable {
			err := fmt.Errorf("gate %s is %s: %s", g.ID, g.State, g.Reason)
			if g.ID == "G3" && g.State == gate.Fail {
				return errors.Join(err, s.copyAgain(ctx, name))
			}
			return err
		}
	}
	return nil
}

// copyAgain has a stream copied anew, once behind each kill of the nats-server: it may have come back with messages
// that clients had removed, which its copy does not have any more (docs/failure-modes.md).
func (s *site) copyAgain(ctx context.Context, name string) error {
	if len(s.natsKills) == 0 || s.copied[name] == len(s.natsKills) {
		return nil
	}
	s.copied[name] = len(s.natsKills)
	s.say("            %-12s is copied anew: the killed nats-server has other messages than before", name)
	ask := map[string]any{"action": "reset", "by": "demo", "reason": "a killed nats-server", "scope": "$G/" + name}
	var answer json.RawMessage
	return s.call(ctx, http.MethodPost, face.Base+"/shadow", ask, &answer)
}
