package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// totals are the talkers' totals by account and name.
func totals(list []Talker) map[string]uint64 {
	out := map[string]uint64{}
	for _, t := range list {
		out[strings.TrimSuffix(t.Account+" "+t.Name, " ")] = t.Total
	}
	return out
}

// Accounts and users are counted exactly, also when their connections end; the busiest are told, and no more than asked for.
func TestTalkers(t *testing.T) {
	o := config(t, `accounts {
		A { users: [{user: quiet, password: p}, {user: loud, password: p}, {user: gone, password: p}, {user: mute, password: p}] }
		B { users: [{user: b, password: p}] }
		C { users: [{user: c, password: p}] }
	}`)()
	s := startWith(t, Options{Server: o, TopTalkers: 2, TopSubjectTokens: 2})
	publish := func(user string, n, size int) *nats.Conn {
		nc := connect(t, s, nats.UserInfo(user, "p"))
		for range n {
			check(t, nc.Publish("x", make([]byte, size)))
		}
		check(t, nc.Flush())
		return nc
	}
	publish("mute", 0, 0)
	publish("quiet", 1, 1)
	publish("loud", 50, 1)
	publish("b", 20, 100)
	publish("c", 3, 1)
	for range 2 {
		publish("gone", 30, 10).Close()
	}
	eventually(t, "both ended", func() bool { return s.Stats().Connections == 5 })
	got := s.Talkers()
	for name, want := range map[string]struct {
		list []Talker
		want map[string]uint64
	}{
		"account messages": {got.AccountMsgs, map[string]uint64{"A": 111, "B": 20}},
		"account bytes":    {got.AccountBytes, map[string]uint64{"B": 2000, "A": 651}},
		"user messages":    {got.UserMsgs, map[string]uint64{"A gone": 60, "A loud": 50}},
		"user bytes":       {got.UserBytes, map[string]uint64{"B b": 2000, "A gone": 600}},
	} {
		if g := fmt.Sprint(totals(want.list)); g != fmt.Sprint(want.want) {
			t.Errorf("%s: %s, want %v", name, g, want.want)
		}
	}
	if none := startWith(t, Options{Server: &server.Options{}}).Talkers(); none.AccountMsgs != nil {
		t.Errorf("got %v though nobody wants to know", none)
	}
}

// The subjects that are published to most are found among very many others, about as heavy as they are.
func TestTalkingSubjects(t *testing.T) {
	s := startWith(t, Options{Server: &server.Options{}, TopTalkers: 3, TopSubjectTokens: 2})
	nc := connect(t, s)
	const n = 60_000
	for i := range n {
		check(t, nc.Publish(fmt.Sprintf("noise%d.a.b", i), nil))
		check(t, nc.Publish(fmt.Sprintf("orders.eu.%d", i), nil))
		check(t, nc.Publish(fmt.Sprintf("_INBOX.%d", i), []byte("0123456789")))
	}
	check(t, nc.Flush())
	got := s.Talkers()
	for name, list := range map[string]map[string]uint64{
		"messages": totals(got.SubjectMsgs), "bytes": totals(got.SubjectBytes),
	} {
		want := map[string]uint64{"$G orders.eu.>": n, "$G _INBOX.>": n}
		if name == "bytes" {
			want = map[string]uint64{"$G _INBOX.>": 10 * n}
		}
		if len(list) != len(want) {
			t.Errorf("%s: got %v", name, list)
		}
		for key, total := range want {
			if g := list[key]; g < total*8/10 || g > total*12/10 {
				t.Errorf("%s of %s: %d, in truth %d", name, key, g, total)
			}
		}
	}
}

func TestBeginning(t *testing.T) {
	for subject, want := range map[string]string{
		"a": "a", "a.b": "a.b", "a.b.c": "a.b.", "a.b.c.d": "a.b.", "_INBOX.x.y": "_INBOX.", "_x": "_x", "": "",
		"$KV.bucket.key": "$KV.bucket.",
	} {
		if got := string(beginning([]byte(subject), 2)); got != want {
			t.Errorf("%q: %q, want %q", subject, got, want)
		}
	}
}
