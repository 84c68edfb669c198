package gateway

import (
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// A client that breaks rules again and again is read more slowly, down to offenceRate offences a second, once
// offencesFree are used up. Each costs an answer and maybe a line of the log, which is more than a message does, and
// the others should not have to wait for that.
const (
	offenceRate  = 200
	offencesFree = time.Second // worth of them
	// offencesAtOnce is after how many of them the reader looks whether it has to pause.
	offencesAtOnce = 20
	// offencesConnect is how many of them a CONNECT counts for that is not the first: it begins everything anew.
	offencesConnect = 10
	// offencePause is how long the reader does nothing else, at most.
	offencePause = 100 * time.Millisecond
	// offenderPing is after how many of such pauses it is asked for a sign of life.
	offenderPing = time.Second
)

// offences are how often a client broke rules. It belongs to the reader.
type offences struct {
	now     int           // not counted in settled yet
	settled time.Time     // when it will have made up for all before
	paused  time.Duration // since it was pinged
}

// refuse answers something that is against the rules but does not end the connection.
func (c *client) refuse(text string) {
	c.sendErr(text)
	c.offences.now++
}

// add counts the offences since the last call and returns when to read on.
func (o *offences) add(now time.Time) time.Time {
	if free := now.Add(-offencesFree); o.settled.Before(free) {
		o.settled = free
	}
	o.settled = o.settled.Add(time.Duration(o.now) * time.Second / offenceRate)
	o.now = 0
	return o.settled
}

// mayGoOn pauses the reader of a client that has just broken many rules. False: the connection has ended.
func (c *client) mayGoOn() bool {
	if c.offences.now < offencesAtOnce {
		return true
	}
	c.flush()
	c.count()
	return c.slowDown()
}

// slowDown pauses the reader of a client that breaks rules too often. False: the connection has ended.
func (c *client) slowDown() bool {
	if c.offences.now == 0 {
		return true
	}
	until := c.offences.add(time.Now())
	for wait := time.Until(until); wait > 0; wait = time.Until(until) {
		wait = min(wait, offencePause)
		if c.offences.paused += wait; c.offences.paused > offenderPing {
			c.enqueue(wire.Ping) // whether it is still there cannot be seen while nothing is read
			c.offences.paused = 0
		}
		select {
		case <-c.gone:
			return false
		case <-time.After(wait):
		}
		if !c.runTasks() {
			return false
		}
	}
	return true
}
