package gateway

import (
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Director has a say in what passes between clients and the servers upstream. Without one everything passes.
type Director interface {
	// Attend returns the guide of a client's connection. It is called before anything has passed.
	Attend(t Traveler) Guide
	// Serves reports whether this server has the say about something of an account; empty: of any account.
	Serves(account string) bool
}

// Traveler is a client's connection as its guide sees it. Safe for concurrent use.
type Traveler interface {
	// ID is the client id (cid).
	ID() uint64
	// Identity returns who the server upstream says that the client is. known closes once that is settled.
	Identity() (id UpstreamIdentity, known <-chan struct{})
}

// UpstreamIdentity is what a server upstream says about a client that has logged in there.
type UpstreamIdentity struct {
	Account string // empty: not known yet
	User    string
	// Permitted: the client's permissions are known and are enforced here too.
	Permitted bool
}

// Guide has a say about one connection. Arrived, Up and Sent are called by one goroutine, Down and Received by another,
// Delivered by many, one at a time.
type Guide interface {
	// Arrived is asked when something has come from the client, before any of it is looked at. A channel means that it
	// has to wait: Arrived is asked again once it is closed.
	Arrived() <-chan struct{}
	// Up is asked about a message from the client before any of it passes. A channel means that it has to wait: Up is
	// asked again once it is closed, and what comes behind waits with it.
	Up(subject, reply []byte, size int) (course Course, wait <-chan struct{})
	// Sent shows a message for which Up has answered CourseShow or CourseLocal. m is borrowed.
	Sent(m *bus.Msg)
	// Down is asked about a message for the client. The answer is one of CoursePass, CourseShow and CourseDrop.
	Down(subject, reply []byte, header bool) Course
	// Received shows a message for which Down has answered CourseShow, before it passes: it passes, or is dropped, or
	// passes with another header or payload if Received has changed m. m is borrowed.
	Received(m *bus.Msg) Course
	// Alone is asked, in place of Up and Down, about a message of a client that is served from here alone, while no
	// server upstream can be reached. It goes to this server's own bus, and Sent is shown it, or it is refused. A
	// channel means that it has to wait, as with Up.
	Alone(subject, reply []byte) (refused *Refusal, wait <-chan struct{})
	// Delivered shows a message of this server's own bus as it is queued for the client. It must not block. m is
	// borrowed.
	Delivered(m *bus.Msg)
	// Closed is called once, when the connection has ended.
	Closed()
}

// Course is the way that a message takes.
type Course uint8

const (
	// CoursePass lets it pass.
	CoursePass Course = iota
	// CourseShow lets it pass, and shows it to the guide when all of it has come.
	CourseShow
	// CourseLocal publishes it on this server's own bus and nowhere else.
	CourseLocal
	// CourseDrop lets it go nowhere.
	CourseDrop
)
