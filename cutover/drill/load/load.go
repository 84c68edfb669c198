// Package load is the load of an exercise: clients that publish numbered messages and take them, through whatever
// happens, and keep an account of what was promised to them and what they got.
//
//	load    the clients
//	ledger  the account
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/noetl/ehdb-gateway/cutover/drill"
)

const (
	workers    = 8 // that publish, and as many that take
	tryTime    = 2 * time.Second
	retryPause = 50 * time.Millisecond
	fetchTime  = 500 * time.Millisecond
	startTime  = 15 * time.Second
	lookEvery  = 20 * time.Millisecond
	// drainTime bounds the wait for what is on its way at the end: several times the ack wait.
	drainTime = 30 * time.Second
)

// Options of a Load.
type Options struct {
	URL     string        // of the gateway's client port
	Connect []nats.Option // how to log in
	// Stream, Subject and Consumer are the exercise's; Rate is in messages a second.
	Stream, Subject, Consumer string
	Rate                      int
}

// Load is a load that runs. Safe for concurrent use.
type Load struct {
	o        Options
	pub, sub *nats.Conn
	out, in  jetstream.JetStream // over pub and sub
	ledger   ledger

	// New messages are published until publishing ends, those that were begun until answering ends, and messages are
	// taken until taking ends.
	publishing, answering, taking context.Context
	stop, give, rest              context.CancelFunc
	publishers, takers            sync.WaitGroup
	limiter                       *rate.Limiter
}

// Start connects and begins. It returns when messages are acknowledged and delivered, or with the reason why not.
func Start(ctx context.Context, o Options) (*Load, error) {
	l := &Load{o: o, ledger: newLedger(), limiter: rate.NewLimiter(rate.Limit(o.Rate), max(o.Rate/workers, 1))}
	var err error
	if l.pub, err = l.connect("publishes"); err != nil {
		return nil, err
	}
	if l.sub, err = l.connect("takes"); err != nil {
		l.pub.Close()
		return nil, err
	}
	if l.out, err = jetstream.New(l.pub); err == nil {
		l.in, err = jetstream.New(l.sub)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	l.publishing, l.stop = context.WithCancel(ctx)
	l.answering, l.give = context.WithCancel(ctx)
	l.taking, l.rest = context.WithCancel(ctx)
	for range workers {
		l.publishers.Go(l.publish)
		l.takers.Go(l.take)
	}
	return l, l.begun()
}

// begun waits for the first messages.
func (l *Load) begun() error {
	ctx, cancel := context.WithTimeout(l.answering, startTime)
	defer cancel()
	if l.until(ctx, func(a *drill.Account) bool { return a.Published > 0 && a.Confirmed > 0 }) == nil {
		return nil
	}
	l.Abandon()
	a := l.ledger.sum()
	return fmt.Errorf("the load does not run: %d messages acknowledged, %d delivered and their acks confirmed: %s; "+
		"the login needs to publish to %s, $JS.API.> and $JS.ACK.>", a.Published, a.Confirmed,
		cmp.Or(a.LastError, "no answer"), l.o.Subject)
}

// connect makes a connection that comes back for ever, and never keeps for later what cannot be sent now.
func (l *Load) connect(what string) (*nats.Conn, error) {
	opts := append([]nats.Option{
		nats.Name("ehdb drill: " + what), nats.MaxReconnects(-1), nats.ReconnectWait(2 * retryPause),
		nats.ReconnectJitter(retryPause, retryPause), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(),
		nats.Timeout(tryTime),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) { l.ledger.lost(nc, err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { l.ledger.back(nc) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.ledger.note(err, time.Now()) }),
	}, l.o.Connect...)
	nc, err := nats.Connect(l.o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("the load cannot log in at %s: %w", l.o.URL, err)
	}
	return nc, nil
}

// publish publishes one message after the other, each until it is acknowledged.
func (l *Load) publish() {
	for l.limiter.Wait(l.publishing) == nil {
		id, floor := l.ledger.next()
		for {
			began := time.Now()
			try, cancel := context.WithTimeout(l.answering, tryTime)
			ack, err := l.out.Publish(try, l.o.Subject, []byte(id), jetstream.WithMsgID(id))
			cancel()
			if err == nil {
				l.ledger.acked(id, ack.Sequence, floor, began)
				break
			}
			if l.answering.Err() != nil { // given up: the account has it as unanswered
				return
			}
			l.ledger.failed(err, began)
			pause(l.answering, retryPause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// take takes one message at a time: what waited in a client would have been sent before it was asked for.
func (l *Load) take() {
	var c jetstream.Consumer
	for l.taking.Err() == nil {
		began := time.Now()
		var err error
		if c == nil {
			try, cancel := context.WithTimeout(l.taking, tryTime)
			c, err = l.in.Consumer(try, l.o.Stream, l.o.Consumer)
			cancel()
		}
		if err == nil {
			err = l.fetch(c)
		}
		if err != nil && l.taking.Err() == nil {
			l.ledger.note(err, began)
			pause(l.taking, retryPause)
		}
	}
}

func (l *Load) fetch(c jetstream.Consumer) error {
	asked := time.Now()
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(fetchTime))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		l.ledger.delivered(meta.Sequence.Stream, string(m.Data()), asked)
		l.confirm(m.Reply(), meta.Sequence.Stream)
	}
	return batch.Error()
}

// confirm acknowledges a delivery until that is confirmed: the ack may have counted though its answer was lost.
func (l *Load) confirm(reply string, seq uint64) {
	for l.taking.Err() == nil {
		began := time.Now()
		try, cancel := context.WithTimeout(l.taking, tryTime)
		_, err := l.sub.RequestWithContext(try, reply, []byte("+ACK"))
		cancel()
		if err == nil {
			l.ledger.confirmed(seq)
			return
		}
		l.ledger.note(err, began)
		pause(l.taking, retryPause)
	}
}

// Fault says that the fault begins now.
func (l *Load) Fault() { l.ledger.fault() }

// Lasts says how long the fault goes on: what comes back is timed from its end.
func (l *Load) Lasts(d time.Duration) { l.ledger.lasts(d) }

// Enough is how many messages show that everything works: two seconds of them.
func (l *Load) Enough() uint64 {
	return max(drill.DefaultLimits.Messages, uint64(2*max(l.o.Rate, 0))) //nolint:gosec,mnd // not negative
}

// Steady waits until enough messages were acknowledged and delivered ahead of the fault. An error is that of ctx.
func (l *Load) Steady(ctx context.Context) error {
	return l.until(ctx, func(a *drill.Account) bool { return a.Before >= l.Enough() })
}

// Felt waits until a client has lost its connection.
func (l *Load) Felt(ctx context.Context) error {
	return l.until(ctx, func(a *drill.Account) bool { return a.Disconnects > 0 })
}

// Recovered waits until enough messages were acknowledged and delivered behind the last trouble.
func (l *Load) Recovered(ctx context.Context) error {
	return l.until(ctx, func(a *drill.Account) bool { return a.After >= l.Enough() })
}

// Quiet returns for how long now nothing has come through, on the worse of the two ways, and why; zero: it does.
func (l *Load) Quiet() (time.Duration, string) { return l.ledger.quiet() }

func (l *Load) until(ctx context.Context, ok func(*drill.Account) bool) error {
	for {
		if a := l.ledger.sum(); ok(&a) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// Finish ends the load when everything is answered and delivered, or does not become so, and returns the account.
func (l *Load) Finish(ctx context.Context) drill.Account {
	l.stop()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var idle atomic.Bool // no publisher begins another message
	l.takers.Go(func() {
		l.publishers.Wait()
		idle.Store(true)
	})
	err := l.until(ctx, func(*drill.Account) bool { return idle.Load() })
	if err == nil {
		err = l.until(ctx, func(a *drill.Account) bool {
			return a.Unanswered == 0 && a.Lost == 0 && a.Confirmed >= a.Published
		})
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		l.ledger.note(err, time.Now())
	}
	l.Abandon()
	return l.ledger.sum()
}

// Abandon ends the load as it is.
func (l *Load) Abandon() {
	l.stop()
	l.give()
	l.rest()
	l.ledger.ended()
	l.publishers.Wait()
	l.takers.Wait()
	l.close()
}

func (l *Load) close() {
	l.pub.Close()
	l.sub.Close()
}

func number(id uint64) string { return strconv.FormatUint(id, 10) }
