package consumer

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// A dead letter is a message that was delivered as often as permitted, or was terminated, on a consumer with
// ehdb.dead_letter. It is exhausted first, like any message that was delivered too often: it is not delivered again and
// stays in its stream. The shell then stores a copy in the other stream and forgets the message, in one group commit,
// so that a crash leaves it in exactly one of the two states. While that fails the message stays exhausted, and it is
// tried again.

// dead is an exhausted message on its way to the other stream.
type dead struct {
	seq   uint64
	count uint64 // deliveries
	why   string // a value of HeaderDeadReason
	text  string // what came with the termination
}

// Headers of a dead letter.
const (
	HeaderDeadReason     = "Ehdb-Dead-Letter-Reason" // reasonMaxDeliver or reasonTerminated
	HeaderDeadText       = "Ehdb-Dead-Letter-Text"   // the reason that came with the termination
	HeaderDeadStream     = "Ehdb-Dead-Letter-Stream"
	HeaderDeadConsumer   = "Ehdb-Dead-Letter-Consumer"
	HeaderDeadSequence   = "Ehdb-Dead-Letter-Sequence" // in its stream
	HeaderDeadDeliveries = "Ehdb-Dead-Letter-Deliveries"
	HeaderDeadTime       = "Ehdb-Dead-Letter-Time" // when the message was stored, RFC 3339

	reasonMaxDeliver = "max_deliver"
	reasonTerminated = "terminated"
)

// DeadLetterMsg is a dead letter as the other stream is to store it.
type DeadLetterMsg struct{ Subject, Header, Data []byte }

const (
	buryRetry = int64(time.Second)
	buryMost  = 256     // letters in one commit
	buryBytes = 4 << 20 // of letters after which a commit takes no more
)

// graves is what the machine knows of letters that could not be stored yet.
type graves struct {
	due   int64           // when to try again; 0: nothing waits
	queue []uint64        // stream sequences of exhausted messages that were not tried yet this time
	told  map[uint64]dead // what is known of them besides the ledger, by stream sequence
}

// look sees to it that what is exhausted already gets buried, where the configuration asks for that.
func (g *graves) look(m *machine, now int64) {
	if m.set.buries && len(m.led.exhausted) > 0 {
		g.due = now
	}
}

// buryAgain asks once more for what could not be buried before, the oldest first.
func (m *machine) buryAgain() {
	g := &m.graves
	g.due = 0
	if !m.set.buries {
		*g = graves{}
		return
	}
	if len(g.queue) == 0 {
		g.queue = slices.Sorted(maps.Keys(m.led.exhausted))
	}
	for len(g.queue) > 0 && len(m.out.dead) < buryMost {
		seq := g.queue[0]
		g.queue = g.queue[1:]
		count, waits := m.led.exhausted[seq]
		if !waits {
			continue
		}
		d, ok := g.told[seq]
		if !ok { // from before a restart: whether it was terminated shows only in the count
			d = dead{seq: seq, count: count, why: reasonTerminated}
			if m.set.maxDeliver > 0 && count >= m.set.maxDeliver {
				d.why = reasonMaxDeliver
			}
		}
		m.out.dead = append(m.out.dead, d)
	}
}

// terminate ends a message's deliveries by request of a client; false if it was never delivered.
func (m *machine) terminate(now int64, a *AckID, text []byte) bool {
	if !m.set.buries {
		return m.acknowledge(now, a)
	}
	e := m.led.bySeq[a.StreamSeq]
	if e == nil {
		if _, waits := m.led.exhausted[a.StreamSeq]; waits {
			return true // it is on its way already
		}
		return m.acknowledge(now, a)
	}
	m.life.acked = now
	m.exhaust(e, dead{why: reasonTerminated, text: string(text)})
	return true
}

// buried is called when letters are stored: they are done.
func (m *machine) buried(now int64, list []dead) {
	for i := range list {
		m.led.forget(list[i].seq)
		delete(m.graves.told, list[i].seq)
	}
	m.graves.look(m, now) // there may be more than fit into one commit
}

// notBuried is called when letters could not be stored.
func (m *machine) notBuried(now int64, list []dead) {
	if len(list) == 0 {
		return
	}
	m.graves.due = now + buryRetry
	if m.graves.told == nil {
		m.graves.told = make(map[uint64]dead)
	}
	for i := range list {
		if _, waits := m.led.exhausted[list[i].seq]; waits {
			m.graves.told[list[i].seq] = list[i]
		}
	}
}

// bury stores the letters in out with the changes in out, in one group commit. If that fails they stay exhausted and
// are tried again; the changes are still in out then.
func (c *Consumer) bury(out *outbox) {
	last := c.stillDead(out)
	if len(out.dead) == 0 {
		return
	}
	n, err := c.buryFirst(out, len(out.dead), last)
	if err != nil && n > 1 { // there may be room for one where there is none for all
		n, err = c.buryFirst(out, 1, last)
	}
	now, later := out.dead[:n], out.dead[n:]
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now().UnixNano()
	c.m.notBuried(at, later)
	if err != nil {
		c.m.notBuried(at, now)
	} else {
		c.m.buried(at, now)
		for i := range now {
			out.acked = append(out.acked, now[i].seq)
		}
	}
	c.timer.set(c.m.nextDue())
}

// buryFirst stores the first most of the letters in out, or as many as fit into one commit, and returns how many that
// is. last is the newest delivery.
func (c *Consumer) buryFirst(out *outbox, most int, last uint64) (int, error) {
	letters, n, err := c.letters(out.dead[:most])
	switch {
	case err != nil:
		return n, err
	case c.o.Bury == nil || c.store.choked:
		return n, errNoDeadLetters
	}
	return n, c.o.Bury(letters, func(group *storage.Batch) error {
		return c.store.join(group, out, forgetAll(out.dead[:n], last))
	})
}

// stillDead takes out of out what was acknowledged after all, and returns the sequence of the newest delivery.
func (c *Consumer) stillDead(out *outbox) (last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out.dead = slices.DeleteFunc(out.dead, func(d dead) bool {
		_, ok := c.m.led.exhausted[d.seq]
		return !ok
	})
	return c.m.led.last.stream
}

var errNoDeadLetters = errors.New("there is no stream for dead letters")

// forgetAll is the change of state that says that list is buried; last is the newest delivery before it.
func forgetAll(list []dead, last uint64) (change []byte) {
	for i := range list {
		change = append(change, opForget)
		change = binary.AppendUvarint(change, last-list[i].seq)
	}
	return change
}

// letters reads the messages of list, as many as fit into one commit: n is how many of list that is. Those that left
// the stream are left out.
func (c *Consumer) letters(list []dead) (letters []DeadLetterMsg, n int, err error) {
	size := 0
	for n < min(len(list), buryMost) && size < buryBytes {
		r, err := c.o.Stream.Log().Get(list[n].seq)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, len(list), err
		}
		if err == nil {
			l := DeadLetterMsg{Subject: r.Key, Header: c.deadHeader(&list[n], &r), Data: r.Data}
			letters = append(letters, l)
			size += len(l.Subject) + len(l.Header) + len(l.Data)
		}
		n++
	}
	return letters, n, nil
}

// deadHeader is the header of a letter: the message's own, without what would make the other stream act, and what
// became of it.
func (c *Consumer) deadHeader(d *dead, r *storage.Record) []byte {
	var header []byte
	if len(r.Header) > 0 {
		header = jsapi.WithoutHeaders(r.Header, actsOnStream)
	}
	for _, h := range [][2]string{
		{HeaderDeadReason, d.why},
		{HeaderDeadText, oneLine(d.text)},
		{HeaderDeadStream, c.o.Stream.Name()},
		{HeaderDeadConsumer, c.o.Name},
		{HeaderDeadSequence, strconv.FormatUint(d.seq, 10)},
		{HeaderDeadDeliveries, strconv.FormatUint(d.count, 10)},
		{HeaderDeadTime, r.TimeUTC().Format(time.RFC3339Nano)},
	} {
		if h[1] != "" {
			header = jsapi.AddHeader(header, h[0], h[1])
		}
	}
	return header
}

// maxDeadText is the most bytes of HeaderDeadText.
const maxDeadText = 1024

// oneLine makes text fit for the value of a header.
func oneLine(text string) string {
	if len(text) > maxDeadText {
		text = strings.ToValidUTF8(text[:maxDeadText], "")
	}
	return strings.Join(strings.Fields(text), " ")
}

// actsOnStream tells the headers by which a stream does more than store a message, and those of an earlier letter.
func actsOnStream(name []byte) bool {
	switch string(name) {
	case jsapi.HeaderMsgID, jsapi.HeaderRollup, jsapi.HeaderTTL, jsapi.HeaderIncr, jsapi.HeaderCounterSources,
		jsapi.HeaderMarkerReason, jsapi.HeaderScheduler, jsapi.HeaderStreamSource, server.JSRequiredApiLevel:
		return true
	}
	for _, prefix := range []string{"Nats-Expected-", "Nats-Batch-", jsapi.HeaderSchedule, "Ehdb-Dead-Letter-"} {
		if strings.HasPrefix(string(name), prefix) {
			return true
		}
	}
	return false
}
