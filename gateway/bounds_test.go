package gateway

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// TestClosedSubscriptionsAreBounded: however many subscriptions the connections that ended had, only so many are kept, of
// the newest.
func TestClosedSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]int{"many": 1, "long": 4 << 10} {
		r, subject := closedRing{limit: 1000}, strings.Repeat("x", text)
		for i := range 2500 {
			subs := make([]SubInfo, maxClosedSubs)
			for j := range subs {
				subs[j].Subject = subject
			}
			r.add(ConnInfo{CID: uint64(i), Subs: subs})
		}
		subs, bytes, oldest := 0, 0, uint64(2500)
		for i := range r.ring {
			c := &r.ring[i]
			subs, bytes = subs+len(c.Subs), bytes+textOf(c.Subs)
			if len(c.Subs) > 0 {
				oldest = min(oldest, c.CID)
			}
		}
		if len(r.ring) != 1000 || subs != r.subs || bytes != r.text || subs > maxAllClosedSubs || bytes > maxAllClosedText {
			t.Errorf("%s: %d connections, %d subscriptions of %d bytes, counted %d of %d", name, len(r.ring), subs, bytes, r.subs, r.text)
		}
		if kept := int(2500 - oldest); subs != kept*maxClosedSubs || kept == 0 {
			t.Errorf("%s: %d subscriptions are kept, those of the newest %d connections would be %d", name, subs, kept, kept*maxClosedSubs)
		}
	}
}

// TestLogOfOneClientIsBounded: who breaks a rule in a loop does not fill the log, and cannot write long lines into it.
func TestLogOfOneClientIsBounded(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	s, err := New(Options{Bus: bus.NewRouter(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Server: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT,
		Users: []*server.User{{
			Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{">"}}},
		}},
	}})
	check(t, err)
	check(t, s.Start())
	defer s.Shutdown()
	c := dialRaw(t, s)
	c.send(t, `CONNECT {"verbose":false,"user":"u","pass":"p"}`+"\r\n")
	const times = 300
	c.send(t, strings.Repeat("PUB "+strings.Repeat("x", 2000)+" 0\r\n\r\n", times)+"PING\r\n")
	for range times {
		c.expect(t, "-ERR 'Permissions Violation for Publish to \""+strings.Repeat("x", 2000)+"\"'")
	}
	c.expect(t, "PONG")
	eventually(t, "the log says what it leaves out", func() bool { return strings.Contains(log.String(), "were left out") })
	said := log.String()
	if n := strings.Count(said, "Publish Violation"); n < clientLinesBurst || n > times/4 {
		t.Errorf("%d lines about %d offences", n, times)
	}
	for line := range strings.Lines(said) {
		if len(line) > 2*maxQuoted {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
	}
}
