package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/noetl/ehdb-gateway/internal/top"
)

// sampleEvery is how many messages of a connection one is looked at for the subjects that are published to most. It is
// prime, so that clients that publish in turns do not always have the same subject looked at.
const sampleEvery = 61

// spare is how many times more keys are counted than shown, so that the heavy ones do not push each other out.
const spare = 10

// Talker is an account, a user or the beginning of subjects, with what it sent and received, or what was published
// there.
type Talker struct {
	Account string
	Name    string // of the user, or the subjects; empty: the account as a whole
	Total   uint64
}

// Talkers are those with most messages and those with most bytes, since the start.
type Talkers struct {
	AccountMsgs, AccountBytes []Talker
	UserMsgs, UserBytes       []Talker // of users that have a name
	SubjectMsgs, SubjectBytes []Talker // estimates: one message in sampleEvery is looked at
}

// talkers finds them. What it needs does not grow with how many there are, but for the accounts, which are counted
// anyway. Nil: nobody wants to know.
type talkers struct {
	shown, tokens             int
	subjectMsgs, subjectBytes *top.Sketch
	// Of connections that ended. Guarded by Server.mu too, so that none is counted twice, or not at all, at its end.
	pastMsgs, pastBytes *top.Sketch
}

func newTalkers(shown, tokens int) *talkers {
	if shown <= 0 {
		return nil
	}
	n := spare * shown
	return &talkers{
		shown: shown, tokens: max(tokens, 1), subjectMsgs: top.New(n), subjectBytes: top.New(n), pastMsgs: top.New(n),
		pastBytes: top.New(n),
	}
}

// sampled looks at the message that cmd is about to publish, for all that were not looked at before it.
func (c *client) sampled(subject []byte, size int) {
	c.unsampled = sampleEvery
	t := c.server.talkers
	if t == nil {
		return
	}
	key := append(append(c.scratch[:0], c.opened.Account...), 0)
	key = append(key, beginning(subject, t.tokens)...)
	c.scratch = key[:0]
	t.subjectMsgs.Add(key, sampleEvery)
	t.subjectBytes.Add(key, uint64(size)*sampleEvery) //nolint:gosec // not negative
}

// beginning returns the first tokens of a subject. What begins with an underscore is made for a single client
// (inboxes): of that only the first token says something.
func beginning(subject []byte, tokens int) []byte {
	if len(subject) > 0 && subject[0] == '_' {
		tokens = 1
	}
	for i, b := range subject {
		if b != '.' {
			continue
		}
		if tokens--; tokens == 0 {
			return subject[:i+1]
		}
	}
	return subject
}

// traffic is what a connection sent and received, and as whom; an empty user is nobody in particular.
func (c *client) traffic() (account, user string, msgs, size uint64) {
	in, inBytes := c.inMsgs.Load(), c.inBytes.Load()
	c.out.mu.Lock()
	out, outBytes := c.outMsgs, c.outBytes
	c.out.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login == nil {
		return "", "", 0, 0
	}
	return c.login.Account, c.login.User, uint64(in + out), uint64(inBytes + outBytes) //nolint:gosec // counters
}

// ended takes what a connection did, at its end. Server.mu is held.
func (t *talkers) ended(account, user string, msgs, size uint64) {
	if t == nil || user == "" {
		return
	}
	key := []byte(talkerKey(account, user))
	t.pastMsgs.Add(key, msgs)
	t.pastBytes.Add(key, size)
}

func talkerKey(account, name string) string { return account + "\x00" + name }

// Talkers returns who sends and receives most.
func (s *Server) Talkers() (out Talkers) {
	t := s.talkers
	if t == nil {
		return out
	}
	accountMsgs, accountBytes := map[string]uint64{}, map[string]uint64{}
	s.mu.Lock()
	clients := slices.Collect(maps.Values(s.clients))
	userMsgs, userBytes := weights(t.pastMsgs.All()), weights(t.pastBytes.All())
	for name, a := range s.accounts {
		accountMsgs[name] = uint64(a.inMsgs.Load() + a.outMsgs.Load())    //nolint:gosec // counters
		accountBytes[name] = uint64(a.inBytes.Load() + a.outBytes.Load()) //nolint:gosec // counters
	}
	s.mu.Unlock()
	for _, c := range clients {
		if account, user, msgs, size := c.traffic(); user != "" {
			userMsgs[talkerKey(account, user)] += msgs
			userBytes[talkerKey(account, user)] += size
		}
	}
	out.AccountMsgs, out.AccountBytes = t.heaviest(accountMsgs), t.heaviest(accountBytes)
	out.UserMsgs, out.UserBytes = t.heaviest(userMsgs), t.heaviest(userBytes)
	out.SubjectMsgs, out.SubjectBytes = below(t.subjectMsgs.Top(t.shown)), below(t.subjectBytes.Top(t.shown))
	return out
}

func weights(items []top.Item) map[string]uint64 {
	out := make(map[string]uint64, len(items))
	for _, i := range items {
		out[i.Key] = i.Weight
	}
	return out
}

// heaviest returns those of all who did most, without those who did nothing.
func (t *talkers) heaviest(all map[string]uint64) []Talker {
	items := make([]top.Item, 0, len(all))
	for key, weight := range all {
		if weight > 0 {
			items = append(items, top.Item{Key: key, Weight: weight})
		}
	}
	return named(top.Heaviest(items, t.shown))
}

func named(items []top.Item) []Talker {
	out := make([]Talker, len(items))
	for i, item := range items {
		out[i].Account, out[i].Name, _ = strings.Cut(item.Key, "\x00")
		out[i].Total = item.Weight
	}
	return out
}

// below is named for beginnings of subjects, which become filters.
func below(items []top.Item) []Talker {
	out := named(items)
	for i := range out {
		if strings.HasSuffix(out[i].Name, ".") {
			out[i].Name += ">"
		}
	}
	return out
}
