package gateway

import "time"

// A client that breaks rules again and again is read more slowly, down to offenceRate offences a second, once offencesFree
// are used up. Each costs an answer and maybe a line of the log, which is more than a message does, and the others should
// not have to wait for that.
const (
	offenceRate  = 200
	offencesFree = time.Second // worth of them
	// offencePause is how long the reader does nothing else, at most.
	offencePause = 100 * time.Millisecond
)

// offences are how often a client broke rules. It belongs to the reader.
type offences struct {
	now     int       // in this read
	settled time.Time // when it will have made up for all before
}

// refuse answers something that is against the rules but does not end the connection.
func (c *client) refuse(text string) {
	c.sendErr(text)
	c.offences.now++
}

// add counts the offences of one read and returns when to read on.
func (o *offences) add(now time.Time) time.Time {
	if free := now.Add(-offencesFree); o.settled.Before(free) {
		o.settled = free
	}
	o.settled = o.settled.Add(time.Duration(o.now) * time.Second / offenceRate)
	o.now = 0
	return o.settled
}

// slowDown pauses the reader of a client that breaks rules too often. False: the connection has ended.
func (c *client) slowDown() bool {
	if c.offences.now == 0 {
		return true
	}
	until := c.offences.add(time.Now())
	for wait := time.Until(until); wait > 0; wait = time.Until(until) {
		select {
		case <-c.gone:
			return false
		case <-time.After(min(wait, offencePause)):
		}
		if !c.runTasks() {
			return false
		}
	}
	return true
}
