package flip

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Event is what an entry of the journal records.
type Event string

// The events. Authority changes with EventFlip and EventRollback alone.
const (
	EventShadow         Event = "shadow"          // a stream came under watch
	EventForget         Event = "forget"          // it is not any more
	EventIntent         Event = "intent"          // a flip began
	EventFlip           Event = "flip"            // the gateway has the say
	EventRollbackIntent Event = "rollback_intent" // a rollback began
	EventRollback       Event = "rollback"        // the servers have the say
	EventAbort          Event = "abort"           // what an intent began ended without effect
	EventReleased       Event = "released"        // what a flip or a rollback was to do behind its record is done
	EventComplete       Event = "complete"        // the way back was given up
	EventCanary         Event = "canary"          // a consumer is served from here
	EventCanaryEnd      Event = "canary_end"      // it is served by the servers
	EventPostponed      Event = "postponed"       // a flip waits for a word, or until a file is gone
	EventHook           Event = "hook"            // a hook was run
	EventVeto           Event = "veto"            // a hook has refused something
	EventPause          Event = "pause"           // copying stops; without a stream: of all
	EventResume         Event = "resume"          // that is over
	EventThrottle       Event = "throttle"        // what is behind is held back; without a stream: of all
	EventUnthrottle     Event = "throttle_off"    // that is over
	EventLimits         Event = "load_limits"     // the loads that copying gives way to; without a stream: of all
	EventGiveWay        Event = "give_way"        // copying gives way to a load, or stops for it
	EventGoOn           Event = "go_on"           // that is over
	EventApproved       Event = "approved"        // somebody else approves of giving up the way back
	EventStart          Event = "start"           // the gateway started, with streams that it has the say about
	EventReset          Event = "reset"           // the copy is filled anew
	EventAccepted       Event = "accepted"        // the observation of a flip has ended, the gateway keeps the say
	EventKept           Event = "kept"            // a flip was to be taken back by itself, and could not be
	EventDrill          Event = "drill"           // a drill begins, or has ended
)

// Entry is one line of the journal.
type Entry struct {
	Time   time.Time     `json:"time"`
	Epoch  uint64        `json:"epoch"` // after the event
	Scope  cutover.Scope `json:"scope"`
	Event  Event         `json:"event"`
	Last   uint64        `json:"last_seq,omitempty"` // of the stream, where authority changes
	By     string        `json:"by,omitempty"`       // who asked for it
	Reason string        `json:"reason,omitempty"`   // why, or why not
	Plan   string        `json:"plan,omitempty"`     // digest of the plan that was agreed to
	// NoReverse is of EventFlip: the servers are not kept equal.
	NoReverse bool `json:"no_reverse_shadow,omitempty"`
	// Undone is how much the servers' consumers had not done with then: they will deliver it if they serve again.
	Undone int `json:"undone,omitempty"`
	// Dormant are the consumers that a rollback makes anew on the servers.
	Dormant []cutover.ConsumerCopy `json:"dormant,omitempty"`
	// Leftover is of EventRollback, as of its Move.
	Leftover bool `json:"leftover,omitempty"`
	// Move is what the move came to, of EventReleased.
	Move *Move `json:"move,omitempty"`
	// Until is of EventFlip: until when it is observed, and Gates those that take it back meanwhile.
	Until time.Time `json:"observe_until,omitzero"`
	Gates []string  `json:"observe_gates,omitempty"`
	// Kept is of EventKept: why it could not be taken back. Reason is why it should be.
	Kept string `json:"kept,omitempty"`
	// Consumer is that of a canary, and Abort the gates that end it.
	Consumer string   `json:"consumer,omitempty"`
	Abort    []string `json:"abort_on,omitempty"`
	// Limits is of EventLimits.
	Limits *Limits `json:"limits,omitempty"`
}

// journal is the file of the entries: each a line of JSON behind its checksum.
type journal struct {
	mu      sync.Mutex
	path    string
	file    *os.File
	entries []Entry
}

const journalName = "cutover.journal"

// openJournal reads the journal in dir, which is made if it is not there. A line that was cut off at the end is
// dropped: its event had not taken effect. Anything else that does not verify is an error.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	j := &journal{path: filepath.Join(dir, journalName)}
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	good := 0
	for len(data[good:]) > 0 {
		line, rest, whole := bytes.Cut(data[good:], []byte{'\n'})
		e, err := parseLine(line)
		if !whole || errors.Is(err, errCut) && len(rest) == 0 {
			break // cut off by a crash
		}
		if err != nil {
			return nil, fmt.Errorf("%s is damaged at byte %d: %w; restore it from a copy: it says which streams are "+
				"served from here", j.path, good, err)
		}
		j.entries = append(j.entries, *e)
		good += len(line) + 1
	}
	if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := errors.Join(j.file.Truncate(int64(good)), seekEnd(j.file), j.file.Sync(), syncDir(dir)); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

func seekEnd(f *os.File) error {
	_, err := f.Seek(0, 2) //nolint:mnd // io.SeekEnd
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's own directory
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errCut is of a line that is not what was written: a crash may have cut it off.
var errCut = errors.New("the checksum does not match")

func parseLine(line []byte) (*Entry, error) {
	var sum uint32
	head, doc, ok := bytes.Cut(line, []byte{' '})
	if _, err := fmt.Sscanf(string(head), "%08x", &sum); !ok || err != nil {
		return nil, errCut
	}
	if crc32.Checksum(doc, castagnoli) != sum {
		return nil, errCut
	}
	var e Entry
	return &e, json.Unmarshal(doc, &e)
}

// add makes an entry durable.
func (j *journal) add(e *Entry) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	line := append(fmt.Appendf(nil, "%08x ", crc32.Checksum(doc, castagnoli)), doc...)
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	j.entries = append(j.entries, *e)
	return nil
}

// all returns the entries, oldest first. They are not to be changed.
func (j *journal) all() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.entries)
}

func (j *journal) close() error { return j.file.Close() }

// standing is what the journal says about one stream.
type standing struct {
	watched, here, complete bool
	open                    Event // the intent that has not ended; empty: none
	last                    uint64
	oneWay                  bool                   // flipped without a way back
	undone                  int                    // Entry.Undone
	dismissed               bool                   // it was under watch, and is to be no more
	paused                  string                 // why nothing is copied; empty: it is
	throttled               *Throttled             // nil: nobody has slowed down copying
	limits                  *Limits                // nil: there are none
	since                   time.Time              // of the last change of authority
	dormant                 []cutover.ConsumerCopy // of the last rollback, if they may not be there yet
	move                    *Move                  // the last one
	canaries                map[string]Canary
	until                   time.Time // of the observation of the last flip; zero: it is not observed any more
	gates                   []string  // Entry.Gates
	kept                    string    // Entry.Kept
	leftover                bool      // Entry.Leftover, and the copy was not reset since
}

// standings replays the journal.
func standings(entries []Entry) (of map[cutover.Scope]*standing, epoch uint64) {
	of = make(map[cutover.Scope]*standing)
	for i := range entries {
		e := &entries[i]
		epoch = max(epoch, e.Epoch)
		s := of[e.Scope]
		if s == nil {
			s = &standing{}
			of[e.Scope] = s
		}
		switch e.Event {
		case EventShadow:
			s.watched, s.dismissed = true, false
		case EventForget:
			*s = standing{dismissed: true}
		case EventIntent, EventRollbackIntent, EventPostponed:
			s.open = e.Event
		case EventHook, EventStart, EventDrill, EventGiveWay, EventGoOn, EventApproved:
		case EventThrottle, EventUnthrottle, EventLimits:
			s.throttle(e)
		case EventAbort, EventVeto:
			s.open = ""
		case EventPause:
			s.paused = e.Reason
		case EventResume:
			s.paused = ""
		case EventFlip:
			s.open, s.here, s.last, s.since = "", true, e.Last, e.Time
			s.oneWay, s.undone = e.NoReverse, e.Undone
			s.until, s.gates, s.kept = e.Until, e.Gates, ""
		case EventRollback:
			s.open, s.here, s.last, s.since, s.dormant, s.oneWay = "", false, e.Last, e.Time, e.Dormant, false
			s.until, s.leftover = time.Time{}, e.Leftover
		case EventReset:
			s.leftover = false
		case EventReleased:
			s.dormant, s.move = nil, cmp.Or(e.Move, s.move)
		case EventComplete:
			s.complete, s.until = true, time.Time{}
		case EventAccepted:
			s.until = time.Time{}
		case EventKept:
			s.kept = e.Kept
		case EventCanary:
			if s.canaries == nil {
				s.canaries = make(map[string]Canary)
			}
			s.canaries[e.Consumer] = Canary{Consumer: e.Consumer, Since: e.Time, By: e.By, Abort: e.Abort}
		case EventCanaryEnd:
			delete(s.canaries, e.Consumer)
		}
	}
	return of, epoch
}
