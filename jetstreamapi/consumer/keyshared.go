package consumer

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// With ehdb.key_shared every message has a key, and the messages of one key are in the hands of one worker at a time,
// in order. A worker is the inbox of a pull request: all requests of one Consume or Messages of a client have the same.
//
// A message is in hand from its delivery until it is acknowledged, given back (NAK, or its delivery reached nobody),
// given up, or its ack wait is over. While one of a key is in hand, the next goes to the same worker or to nobody.
// While one of a key is to be delivered, because it was given back or passed over, none of that key that follows is.
//
// What the consumer comes to and cannot deliver is parked: it is an entry of the ledger without a delivery, so that the
// consumer reads on and everything else (ack floor, what a stream may let go of, what survives a restart) is as it is.
// Who has what in hand is not written down: after a restart a key waits until what was in hand is done or due.

// keyAhead is how many messages a consumer passes over at most. When as many are parked, it waits for their keys.
const keyAhead = 4096

// keyRule tells the key of a message.
type keyRule struct {
	header string // whose value is the key; empty: the subject
	token  int    // of the subject, from 1; 0: all of it
}

// parseKeyRule reads the value of ehdb.key_shared.
func parseKeyRule(text string) (*keyRule, error) {
	kind, arg, more := strings.Cut(text, ":")
	switch {
	case kind == "subject" && !more:
		return &keyRule{}, nil
	case kind == "subject":
		if n, err := strconv.ParseUint(arg, 10, 8); err == nil && n > 0 {
			return &keyRule{token: int(n)}, nil
		}
	case kind == "header" && arg != "" && !strings.ContainsAny(arg, ": \t\r\n"):
		return &keyRule{header: arg}, nil
	}
	return nil, fmt.Errorf(`%s is %q, it has to be "subject", "subject:N" with the number of a token from 1 to 255, `+
		`or "header:Name"`, KeyKeyShared, text)
}

// keyRuleOf returns the rule of a configuration, which was checked; nil: there is none.
func keyRuleOf(cfg *server.ConsumerConfig) *keyRule {
	text, set := cfg.Metadata[KeyKeyShared]
	if !set {
		return nil
	}
	r, err := parseKeyRule(text)
	if err != nil {
		return nil
	}
	return r
}

// key returns the key of a message. Those without the header or the token have the empty key.
func (r *keyRule) key(rec *storage.Record) []byte {
	if r.header != "" {
		return jsapi.HeaderValue(rec.Header, r.header)
	}
	if r.token == 0 {
		return rec.Key
	}
	rest := rec.Key
	for n := 1; ; n++ {
		token, after, more := bytes.Cut(rest, []byte{'.'})
		if n == r.token {
			return token
		}
		if !more {
			return nil
		}
		rest = after
	}
}

// keyIndex knows who has which key, and which keys have something to deliver. emptied, wait and drop may be called on
// nil, which is a consumer without keys.
type keyIndex struct {
	rule    keyRule
	seed    maphash.Seed
	ahead   int  // bound of what may be parked
	learned bool // the keys of what was outstanding at the start are known
	keys    map[uint64]*sharedKey
	workers map[string]*keyWorker // those that have something in hand
	free    readyKeys             // nobody has them
}

// sharedKey is a key of which a message is outstanding or parked. Keys with the same hash are one.
type sharedKey struct {
	hash    uint64
	inHand  int
	worker  *keyWorker // has what is in hand; nil: nobody, or somebody from before a restart
	waiting []*entry   // to be delivered before anything else of the key, ascending

	in         *keyList // where it is ready; nil: it is not
	prev, next *sharedKey
}

// keyWorker is a worker that has something in hand.
type keyWorker struct {
	name  string
	keys  int       // that it has
	ready readyKeys // those of them with something to deliver
}

// readyKeys are keys of which a message can be delivered now: one that was delivered before, or a new one, for which
// there must be room.
type readyKeys struct{ again, fresh keyList }

// keyList is keys in the order in which they became ready.
type keyList struct{ head, tail *sharedKey }

func newKeyIndex(rule *keyRule, ahead int) *keyIndex {
	return &keyIndex{
		rule: *rule, seed: maphash.MakeSeed(), ahead: ahead, keys: map[uint64]*sharedKey{},
		workers: map[string]*keyWorker{},
	}
}

// emptied returns an index as x that knows nothing.
func (x *keyIndex) emptied() *keyIndex {
	if x == nil {
		return nil
	}
	return newKeyIndex(&x.rule, x.ahead)
}

func (x *keyIndex) hash(rec *storage.Record) uint64 { return maphash.Bytes(x.seed, x.rule.key(rec)) }

// ready returns a key of which a message can go to a worker now; nil: there is none. full: new ones are not wanted.
func (x *keyIndex) ready(worker string, full bool) *sharedKey {
	var own readyKeys
	if w := x.workers[worker]; w != nil {
		own = w.ready
	}
	switch {
	case own.again.head != nil:
		return own.again.head
	case x.free.again.head != nil:
		return x.free.again.head
	case full:
		return nil
	case own.fresh.head != nil:
		return own.fresh.head
	}
	return x.free.fresh.head
}

// mayGoTo reports whether a worker may have the next message of k; nil is a key of which nothing is outstanding.
func (k *sharedKey) mayGoTo(worker string) bool {
	return k == nil || k.inHand == 0 || k.worker != nil && k.worker.name == worker
}

// learn takes in an entry whose key was not known.
func (x *keyIndex) learn(e *entry, hash uint64) {
	k := x.keys[hash]
	if k == nil {
		k = &sharedKey{hash: hash}
		x.keys[hash] = k
	}
	e.key = k
	if e.waits() {
		k.insert(e)
	} else {
		e.inHand = true
		k.inHand++
	}
	x.place(k)
}

// took notes that e was delivered to a worker.
func (x *keyIndex) took(e *entry, worker string) {
	k := e.key
	if !e.inHand {
		k.remove(e)
		e.inHand = true
		k.inHand++
	}
	if k.worker == nil {
		w := x.workers[worker]
		if w == nil {
			w = &keyWorker{name: worker}
			x.workers[worker] = w
		}
		w.keys++
		k.worker = w
	}
	x.place(k)
}

// wait notes that e is to be delivered again, or that this is due now.
func (x *keyIndex) wait(e *entry) {
	if x == nil || e.key == nil {
		return
	}
	if e.inHand {
		x.leaveHand(e)
		e.key.insert(e)
	}
	x.place(e.key)
}

// drop forgets e.
func (x *keyIndex) drop(e *entry) {
	if x == nil || e.key == nil {
		return
	}
	k := e.key
	if e.inHand {
		x.leaveHand(e)
	} else {
		k.remove(e)
	}
	x.place(k)
	if k.inHand == 0 && len(k.waiting) == 0 {
		delete(x.keys, k.hash)
	}
}

func (x *keyIndex) leaveHand(e *entry) {
	k := e.key
	e.inHand = false
	if k.inHand--; k.inHand > 0 || k.worker == nil {
		return
	}

	if k.worker.keys--; k.worker.keys == 0 {
		delete(x.workers, k.worker.name)
	}
	k.worker = nil
}

// place puts k where it is looked for.
func (x *keyIndex) place(k *sharedKey) {
	to := x.placeOf(k)
	if to == k.in {
		return
	}
	x.unready(k)
	if to == nil {
		return
	}
	k.in, k.prev = to, to.tail
	if to.tail == nil {
		to.head = k
	} else {
		to.tail.next = k
	}
	to.tail = k
}

// placeOf returns the list for k; nil: it is not ready.
func (x *keyIndex) placeOf(k *sharedKey) *keyList {
	if len(k.waiting) == 0 || k.inHand > 0 && k.worker == nil {
		return nil
	}
	to := &x.free
	if k.worker != nil {
		to = &k.worker.ready
	}
	switch e := k.waiting[0]; {
	case e.parked:
		return &to.fresh
	case e.queued:
		return &to.again
	}
	return nil // a NAK asked for a delay
}

func (x *keyIndex) unready(k *sharedKey) {
	if k.in == nil {
		return
	}
	if k.prev == nil {
		k.in.head = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		k.in.tail = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.in, k.prev, k.next = nil, nil, nil
}

// find returns where e is, or would be, in waiting.
func (k *sharedKey) find(e *entry) (int, bool) {
	i := sort.Search(len(k.waiting), func(i int) bool { return k.waiting[i].sseq >= e.sseq })
	return i, i < len(k.waiting) && k.waiting[i] == e
}

func (k *sharedKey) insert(e *entry) {
	i, _ := k.find(e)
	k.waiting = slices.Insert(k.waiting, i, e)
}

func (k *sharedKey) remove(e *entry) {
	switch i, ok := k.find(e); {
	case !ok:
	case i == 0:
		k.waiting[0] = nil
		k.waiting = k.waiting[1:]
	default:
		k.waiting = slices.Delete(k.waiting, i, i+1)
	}
}
