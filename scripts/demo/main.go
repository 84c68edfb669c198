// Command demo shows a cutover from a live nats-server, end to end: it starts a real nats-server, the gateway in front
// of it and programs that use streams, walks nats, shadow, a rehearsal, flip, SIGKILL, rollback and flip again while
// they work, and keeps account of every message.
//
//	go run ./scripts/demo -gateway bin/ehdb-gateway -nats bin/nats-server
//
// It ends with an error if a message was lost or came twice, or a client saw an error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// options are the flags.
type options struct {
	gateway, nats string
	rate, clients int
	pause         time.Duration
	kills         int
	killMoves     bool
	killNATS      bool
	prof          int
	asJSON        bool
}

func main() {
	var o options
	flag.StringVar(&o.gateway, "gateway", "bin/ehdb-gateway", "the gateway's binary")
	flag.StringVar(&o.nats, "nats", "bin/nats-server", "a nats-server's binary")
	flag.IntVar(&o.rate, "rate", 2000, "messages per second")
	flag.IntVar(&o.clients, "clients", 200, "connections")
	flag.DurationVar(&o.pause, "pause", 3*time.Second, "how long the load runs between steps")
	flag.IntVar(&o.kills, "kills", 1, "how often the gateway is killed while it serves the streams")
	flag.BoolVar(&o.killMoves, "kill-moves", false,
		"the gateway is killed during each flip and rollback too, at some moment, and the move made again")
	flag.BoolVar(&o.killNATS, "kill-nats", false,
		"the nats-server is killed during each flip and rollback too")
	flag.IntVar(&o.prof, "prof", 0, "port of the gateway's profiler; 0: none")
	flag.BoolVar(&o.asJSON, "json", false, "the accounting as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run walks through the cutover.
func run(ctx context.Context, o *options) (err error) {
	s, err := newSite(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(err)) }()
	if err := s.startNATS(ctx); err != nil {
		return err
	}
	s.say("1  nats     the gateway passes everything on to a nats-server")
	if err := s.startGateway(ctx, "nats"); err != nil {
		return err
	}
	l, err := startLoad(ctx, s, o)
	if err != nil {
		return err
	}
	defer l.halt()
	l.rest(ctx, "nats")
	if err := s.compare(ctx); err != nil {
		return err
	}
	s.say("2  shadow   the same, and the streams are copied and compared")
	if err := s.restart(ctx, "shadow"); err != nil {
		return err
	}
	l.rest(ctx, "shadow")
	if err := s.awaitParity(ctx); err != nil {
		return err
	}
	s.say("3  canary   a stream of the gateway's own there and back")
	if err := s.rehearse(ctx); err != nil {
		return err
	}
	if err := s.moves(ctx, l, o); err != nil {
		return err
	}
	l.stop(ctx)
	a := l.account(s)
	if a.check() != nil {
		l.tell(os.Stderr)
	}
	if o.asJSON {
		return errors.Join(json.NewEncoder(os.Stdout).Encode(a), a.check())
	}
	a.print()
	return a.check()
}

// moves takes the streams over, kills the gateway, gives them back and takes them over again.
func (s *site) moves(ctx context.Context, l *load, o *options) error {
	s.say("4  flip     the gateway has the say")
	if err := s.flipAll(ctx); err != nil {
		return err
	}
	l.rest(ctx, "ehdb")
	for i := range o.kills {
		s.say("5  SIGKILL  of the gateway (%d of %d)", i+1, o.kills)
		if err := s.kill(ctx); err != nil {
			return err
		}
		l.rest(ctx, "ehdb")
	}
	s.say("6  rollback the servers have the say again")
	if err := s.rollbackAll(ctx); err != nil {
		return err
	}
	l.rest(ctx, "rolled back")
	s.say("7  flip     again")
	if err := s.flipAll(ctx); err != nil {
		return err
	}
	l.rest(ctx, "ehdb")
	return nil
}
