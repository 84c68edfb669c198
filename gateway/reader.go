package gateway

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// reader is the state of a connection's read loop; nothing else touches it.
type reader struct {
	parser    *wire.Parser
	command   wire.Command
	options   wire.Connect // what the client asked for, defaults before that
	connected bool         // a CONNECT came, or nobody in particular was accepted without one
	awaiting  bool         // the next command has to be a CONNECT
	ponged    bool         // the first PONG was sent
	checked   bool         // of a pedantic client: the subject of the message that is coming in was looked at
	bus       bus.Session  // same as client.session
	opened    bus.Identity // of bus
	published bool         // something was published since the last flush
	stall     <-chan struct{}
	msgs      int64 // of this read
	bytes     int64
	subs      int64
	unsampled int               // messages until one is looked at for talkers
	replySub  *bus.Subscription // hears the replies of the client's requests, see subFor
	renamer   bus.Renamer       // nil: nothing is renamed
	tracer    bus.Tracer        // nil: nothing is traced
	offences  offences
	msg       bus.Msg
	scratch   []byte
}

func (c *client) initReader(set *settings) {
	c.options = wire.DefaultConnect()
	c.awaiting = set.authOf(c).Required()
	c.unsampled = int(c.cid % sampleEvery) // each begins elsewhere, so that connections with few messages count too
	c.parser = wire.NewParser(wire.Limits{
		MaxControlLine: int(set.MaxControlLine),
		MaxPayload:     int(set.MaxPayload),
	}, &c.server.pool)
}

// run reads and handles commands until the connection ends.
func (c *client) run() {
	defer c.parser.Close()
	for {
		n, err := c.stream.Read(c.parser.Space())
		if n > 0 {
			c.parser.Filled(n)
			if !c.consume() {
				return
			}
		}
		if err == nil || (errors.Is(err, os.ErrDeadlineExceeded) && c.runTasks()) {
			continue
		}
		if errors.Is(err, io.EOF) {
			c.close(ReasonClientClosed)
		} else {
			c.close(ReasonReadError)
		}
		return
	}
}

// consume handles everything that one read brought. False ends the connection.
func (c *client) consume() bool {
	ok := c.arrivedAlone() && c.commands()
	c.flush()
	c.count()
	if !ok || c.closing.Load() {
		return false
	}
	if c.stall != nil {
		c.pause(c.stall)
		c.stall = nil
	}
	return c.slowDown() && !c.closing.Load()
}

// commands handles the commands that are complete.
func (c *client) commands() bool {
	for {
		if c.awaiting && !c.mayBegin() {
			return false
		}
		ok, err := c.parser.Next(&c.command)
		if err != nil {
			c.flush()
			c.checkPending()
			c.parseFailed(err)
			return false
		}
		if !ok {
			c.checkPending()
			return true
		}
		if c.traced.Load() {
			c.traceIn(&c.command)
		}
		if c.command.Op == wire.OpPub {
			if c.publish(&c.command); !c.mayGoOn() {
				return false
			}
			continue
		}
		c.flush()
		if !c.control(&c.command) || !c.mayGoOn() {
			return false
		}
	}
}

// control handles a command that is not a message. False ends the connection.
func (c *client) control(cmd *wire.Command) bool {
	switch cmd.Op {
	case wire.OpSub:
		return c.subscribe(cmd)
	case wire.OpUnsub:
		c.unsubscribe(cmd)
	case wire.OpPing:
		c.ping()
	case wire.OpPong:
		c.pong()
	case wire.OpConnect:
		return c.connect(cmd.Arg)
	case wire.OpErr:
		c.fault("Client Error {text}", quoted("text", cmd.Arg))
		c.close(ReasonParseError)
		return false
	case wire.OpInfo:
		return c.ignoreInfo(cmd.Arg)
	case wire.OpNone, wire.OpOK, wire.OpPub, wire.OpHPub, wire.OpMsg, wire.OpHMsg:
	}
	return true
}

// flush delivers what was published. Whatever the client could see in order with messages comes after it.
func (c *client) flush() {
	if !c.published {
		return
	}
	c.published = false
	if stall := c.bus.Flush(); stall != nil {
		c.stall = stall
	}
	c.msg = bus.Msg{}
}

// count adds what one read brought to the totals.
func (c *client) count() {
	if c.msgs == 0 && c.subs == 0 {
		return
	}
	now := time.Now()
	c.touch(now)
	c.lastInput.Store(now.UnixNano())
	if c.msgs > 0 {
		c.inMsgs.Add(c.msgs)
		c.inBytes.Add(c.bytes)
		c.server.inMsgs.Add(c.msgs)
		c.server.inBytes.Add(c.bytes)
		if a := c.account; a != nil {
			a.inMsgs.Add(c.msgs)
			a.inBytes.Add(c.bytes)
		}
	}
	c.msgs, c.bytes, c.subs = 0, 0, 0
}

// pause stops reading until a queue has room again, so that the producer feels it.
func (c *client) pause(gate <-chan struct{}) {
	select {
	case <-gate:
		return
	default:
	}
	c.stalls.Add(1)
	c.server.stalls.Add(1)
	limit := time.NewTimer(defaultStallLimit)
	defer limit.Stop()
	select {
	case <-gate:
	case <-c.gone:
	case <-limit.C:
		c.fault("Producer was stalled for {limit}", slog.Duration("limit", defaultStallLimit))
	}
}

// parseFailed answers what the parser could not take and ends the connection.
func (c *client) parseFailed(err error) {
	var payload *wire.PayloadError
	switch {
	case errors.As(err, &payload):
		c.fault("{error}", slog.Any("error", err))
		c.expel(errMaxPayload, ReasonMaxPayload)
	case errors.Is(err, wire.ErrMaxControlLine):
		c.fault("{error}", slog.Any("error", err))
		c.expel(errMaxControlLine, ReasonMaxControlLine)
	case errors.Is(err, wire.ErrUnknownOp):
		c.fault("Client parser ERROR: {error}", slog.Any("error", err))
		c.expel(errUnknownOp, ReasonProtocolViolation)
	default:
		c.fault("Client parser ERROR: {error}", slog.Any("error", err))
		c.close(ReasonProtocolViolation)
	}
}
