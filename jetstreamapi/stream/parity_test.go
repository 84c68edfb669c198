package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// script is a run of steps on one stream, each of which leaves a line.
type script struct {
	t     *testing.T
	w     world
	lines []string
}

func (s *script) line(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *script) create(cfg server.StreamConfig) {
	s.t.Helper()
	if cfg.Storage == 0 {
		cfg.Storage = server.FileStorage
	}
	cfg.Name, cfg.Replicas = "S", 1
	if cfg.Subjects == nil {
		cfg.Subjects = []string{"s.>"}
	}
	if err := s.w.create(s.t, cfg); err != nil {
		s.t.Fatal(err)
	}
}

// pub publishes and notes the answer. pairs are headers.
func (s *script) pub(subject, data string, pairs ...string) {
	s.t.Helper()
	s.line("pub %s %d bytes %v: %s", subject, len(data), pairs, canonical(s.w.publish(s.t, subject, block(pairs...), data)))
}

func (s *script) state() {
	s.t.Helper()
	s.line("%s", stateLine(s.w.state(s.t)))
}

func (s *script) purge(req server.JSApiStreamPurgeRequest) {
	s.t.Helper()
	n, err := s.w.purge(s.t, req)
	s.line("purge %+v: %d %s", req, n, errorLine(err))
	s.state()
}

func (s *script) del(seq uint64, noErase bool) {
	s.t.Helper()
	s.line("delete %d: %s", seq, errorLine(s.w.deleteMsg(s.t, seq, noErase)))
	s.state()
}

// settle waits until the stream holds n messages, then notes its state.
func (s *script) settle(n uint64) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("%d messages", n), func() bool { return s.w.state(s.t).Msgs == n })
	s.state()
}

func (s *script) message(seq uint64) {
	s.t.Helper()
	s.line("message %d: %s", seq, s.w.message(s.t, seq))
}

func (s *script) heard(from <-chan string) {
	s.t.Helper()
	select {
	case m := <-from:
		s.line("heard %s", m)
	case <-time.After(patience):
		s.t.Fatal("heard nothing")
	}
}

func (s *script) update(change func(*server.StreamConfig)) {
	s.t.Helper()
	cfg := s.w.config(s.t)
	change(&cfg)
	s.line("update: %s", errorLine(s.w.update(s.t, cfg)))
	s.state()
}

func block(pairs ...string) []byte {
	if len(pairs) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("NATS/1.0\r\n")
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(pairs[i] + ": " + pairs[i+1] + "\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// scripts are run on a nats-server and on ours, and every answer and state must be the same.
var scripts = map[string]func(*script){
	"plain": func(s *script) {
		s.create(server.StreamConfig{})
		s.state()
		s.pub("s.a", "one")
		s.pub("s.b", "")
		s.pub("s.a", "three", "A", "b")
		s.pub("s.a", "four", "A", "b", "A", "c")
		s.state()
	},
	"first seq": func(s *script) {
		s.create(server.StreamConfig{FirstSeq: 100})
		s.state()
		s.pub("s.a", "one")
		s.state()
	},
	"memory": func(s *script) {
		s.create(server.StreamConfig{Storage: server.MemoryStorage, MaxBytes: 100})
		for i := range 10 {
			s.pub("s.a", strings.Repeat("x", 3*i), "A", "b")
			s.state()
		}
	},
	"max msgs": func(s *script) {
		s.create(server.StreamConfig{MaxMsgs: 3})
		for i := range 5 {
			s.pub(fmt.Sprintf("s.%d", i%2), "x")
			s.state()
		}
	},
	"max bytes": func(s *script) {
		s.create(server.StreamConfig{MaxBytes: 200})
		for _, n := range []int{10, 50, 30, 0, 90, 170, 5, 300, 1} {
			s.pub("s.a", strings.Repeat("x", n))
			s.state()
		}
	},
	"max per subject": func(s *script) {
		s.create(server.StreamConfig{MaxMsgsPer: 2, MaxMsgs: 4})
		for i := range 12 {
			s.pub(fmt.Sprintf("s.%d", i%5%3), "x")
			s.state()
		}
	},
	"max msg size": func(s *script) {
		s.create(server.StreamConfig{MaxMsgSize: 40})
		s.pub("s.a", strings.Repeat("x", 40))
		s.pub("s.a", strings.Repeat("x", 41))
		s.pub("s.a", strings.Repeat("x", 30), "Some", "header")
		s.state()
	},
	"large header": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "x", "A", strings.Repeat("y", 65535))
		s.pub("s.a", "x", "A", strings.Repeat("y", 65000))
		s.state()
	},
	"discard new": func(s *script) {
		s.create(server.StreamConfig{MaxMsgs: 2, MaxBytes: 150, Discard: server.DiscardNew})
		s.pub("s.a", "1")
		s.pub("s.a", strings.Repeat("x", 120))
		s.pub("s.a", "2")
		s.pub("s.a", "3")
		s.state()
		s.del(1, true)
		s.pub("s.a", "4")
		s.state()
	},
	"discard new per subject": func(s *script) {
		s.create(server.StreamConfig{MaxMsgsPer: 1, MaxMsgs: 3, Discard: server.DiscardNew, DiscardNewPer: true, AllowRollup: true})
		s.pub("s.a", "1")
		s.pub("s.a", "2")
		s.pub("s.a", "3", "Nats-Rollup", "sub")
		s.pub("s.b", "4")
		s.pub("s.c", "5")
		s.pub("s.d", "6")
		s.state()
	},
	"key-value": func(s *script) {
		s.create(server.StreamConfig{MaxMsgsPer: 1, Discard: server.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: true, MaxBytes: 400})
		s.pub("s.a", "1", "Nats-Expected-Last-Subject-Sequence", "0")
		s.pub("s.a", "1", "Nats-Expected-Last-Subject-Sequence", "0")
		s.pub("s.a", "2", "Nats-Expected-Last-Subject-Sequence", "1")
		s.pub("s.a", "2", "Nats-Expected-Last-Subject-Sequence", "1")
		s.pub("s.a", "", "KV-Operation", "DEL")
		s.pub("s.a", "", "KV-Operation", "PURGE", "Nats-Rollup", "sub")
		s.state()
		s.del(1, false)
		for i := range 8 {
			s.pub("s."+string(rune('a'+i%3)), strings.Repeat("x", 20*i))
			s.state()
		}
	},
	"dedup": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "1", "Nats-Msg-Id", "a")
		s.pub("s.a", "2", "Nats-Msg-Id", "b")
		s.pub("s.b", "3", "Nats-Msg-Id", "a")
		s.pub("s.b", "4", "Nats-Msg-Id", "a", "Nats-Expected-Last-Sequence", "7")
		s.pub("s.b", "4", "Nats-Msg-Id", "a", "Nats-Expected-Last-Msg-Id", "nope")
		s.pub("s.a", "5", "Nats-Expected-Last-Msg-Id", "a")
		s.pub("s.a", "6", "Nats-Expected-Last-Msg-Id", "b")
		s.pub("s.a", "7", "Nats-Expected-Last-Msg-Id", "b")
		s.state()
		s.purge(server.JSApiStreamPurgeRequest{})
		s.pub("s.a", "8", "Nats-Msg-Id", "a")
	},
	"expected": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "1", "Nats-Expected-Last-Sequence", "0")
		s.pub("s.a", "2", "Nats-Expected-Last-Sequence", "0")
		s.pub("s.a", "3", "Nats-Expected-Last-Sequence", "x")
		s.pub("s.a", "4", "Nats-Expected-Stream", "S")
		s.pub("s.a", "5", "Nats-Expected-Stream", "T")
		s.pub("s.b", "6", "Nats-Expected-Last-Subject-Sequence", "2", "Nats-Expected-Last-Subject-Sequence-Subject", "s.a")
		s.pub("s.b", "7", "Nats-Expected-Last-Subject-Sequence", "3", "Nats-Expected-Last-Subject-Sequence-Subject", "s.*")
		s.pub("s.b", "8", "Nats-Expected-Last-Subject-Sequence", "3", "Nats-Expected-Last-Subject-Sequence-Subject", "s.*")
		s.pub("s.b", "9", "Nats-Expected-Last-Subject-Sequence-Subject", "s.a")
		s.pub("s.c", "10", "Nats-Expected-Last-Subject-Sequence", "0")
		s.pub("s.d", "11", "Nats-Expected-Last-Subject-Sequence", "1")
		s.state()
	},
	"refused features": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "", "Nats-Incr", "+1")
		s.pub("s.a", "", "Nats-Incr", "x")
		s.pub("s.a", "", "Nats-TTL", "5")
		s.pub("s.a", "", "Nats-TTL", "never")
		s.pub("s.a", "", "Nats-TTL", "zzz")
		s.pub("s.a", "", "Nats-Rollup", "sub")
		s.pub("s.a", "", "Nats-Schedule", "@every 1s")
		s.pub("s.a", "", "Nats-Schedule", "nonsense")
		s.pub("s.a", "", "Nats-Scheduler", "s.b")
		s.pub("s.a", "", "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.b")
		s.pub("s.a", "", "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.a")
		s.pub("s.a", "", "Nats-Schedule-Next", "x")
		s.pub("s.a", "", "Nats-Stream-Source", "O 1")
		s.pub("s.a", "", "Nats-Batch-Id", "b", "Nats-Batch-Sequence", "1")
		s.state()
	},
	"rollup": func(s *script) {
		s.create(server.StreamConfig{AllowRollup: true})
		for i := range 6 {
			s.pub(fmt.Sprintf("s.%d", i%2), "x")
		}
		s.pub("s.0", "r", "Nats-Rollup", "SUB")
		s.state()
		s.pub("s.0", "r", "Nats-Rollup", "nope")
		s.pub("s.0", "r", "Nats-Rollup", "all")
		s.state()
	},
	"purge": func(s *script) {
		s.create(server.StreamConfig{})
		for i := range 12 {
			s.pub(fmt.Sprintf("s.%d.%d", i%2, i%3), "x")
		}
		s.purge(server.JSApiStreamPurgeRequest{Sequence: 1})
		s.purge(server.JSApiStreamPurgeRequest{Sequence: 3})
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.1.*", Sequence: 7})
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.*.0", Keep: 1})
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.0.1"})
		s.purge(server.JSApiStreamPurgeRequest{Subject: "none"})
		s.purge(server.JSApiStreamPurgeRequest{Keep: 2})
		s.purge(server.JSApiStreamPurgeRequest{Keep: 9})
		s.purge(server.JSApiStreamPurgeRequest{Sequence: 2, Keep: 1})
		s.purge(server.JSApiStreamPurgeRequest{})
		s.pub("s.a", "x")
		s.purge(server.JSApiStreamPurgeRequest{Sequence: 100})
		s.pub("s.a", "x")
		s.state()
	},
	"purge of nothing": func(s *script) {
		s.create(server.StreamConfig{})
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.a"})
		s.purge(server.JSApiStreamPurgeRequest{})
		s.pub("s.a", "x")
		s.state()
	},
	"delete": func(s *script) {
		s.create(server.StreamConfig{})
		for range 6 {
			s.pub("s.a", "x")
		}
		s.del(3, false)
		s.del(3, false)
		s.del(1, true)
		s.del(2, true)
		s.del(2, true)
		s.del(99, true)
		s.del(6, true)
		s.pub("s.a", "x")
		s.state()
	},
	"delete in memory": func(s *script) {
		s.create(server.StreamConfig{Storage: server.MemoryStorage})
		for range 3 {
			s.pub("s.a", "x")
		}
		s.del(2, false)
		s.del(2, false)
		s.del(99, true)
		s.del(3, true)
		s.del(1, true)
	},
	"denied": func(s *script) {
		s.create(server.StreamConfig{DenyDelete: true, DenyPurge: true})
		s.pub("s.a", "x")
		s.del(1, false)
		s.purge(server.JSApiStreamPurgeRequest{})
	},
	"sealed": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "x")
		s.update(func(c *server.StreamConfig) { c.Sealed = true })
		s.pub("s.a", "x")
		s.del(1, false)
		s.purge(server.JSApiStreamPurgeRequest{})
	},
	"interest without consumers": func(s *script) {
		s.create(server.StreamConfig{Retention: server.InterestPolicy})
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
		s.pub("s.a", "x", "Nats-Expected-Last-Msg-Id", "a")
		s.pub("s.a", "x", "Nats-Expected-Last-Sequence", "2")
		s.state()
	},
	"work queue": func(s *script) {
		s.create(server.StreamConfig{Retention: server.WorkQueuePolicy})
		s.pub("s.a", "x")
		s.pub("s.a", "x")
		s.state()
	},
	"lower limits": func(s *script) {
		s.create(server.StreamConfig{})
		for i := range 12 {
			s.pub(fmt.Sprintf("s.%d", i%3), strings.Repeat("x", i))
		}
		s.update(func(c *server.StreamConfig) { c.MaxMsgs = 10 })
		s.update(func(c *server.StreamConfig) { c.MaxMsgsPer = 3 })
		s.update(func(c *server.StreamConfig) { c.MaxBytes = 200 })
		s.pub("s.9", "x")
		s.update(func(c *server.StreamConfig) { c.Subjects = []string{"s.0", "t"} })
		s.pub("t", "x")
		s.update(func(c *server.StreamConfig) { c.Retention = server.InterestPolicy })
	},
	"transform": func(s *script) {
		s.create(server.StreamConfig{
			Subjects:         []string{"s.>"},
			SubjectTransform: &server.SubjectTransformConfig{Source: "s.*", Destination: "moved.$1"},
		})
		s.pub("s.a", "x")
		s.pub("s.a.b", "x")
		s.pub("s.a", "x", "Nats-Expected-Last-Subject-Sequence", "1")
		s.state()
	},
	"message TTL": func(s *script) {
		s.create(server.StreamConfig{AllowMsgTTL: true})
		s.pub("s.a", "x", "Nats-TTL", "60")
		s.pub("s.a", "x", "Nats-TTL", "0")
		s.pub("s.a", "x", "Nats-TTL", "10ms")
		s.pub("s.a", "x", "Nats-TTL", "never")
		s.state()
	},
	"max age": func(s *script) {
		s.create(server.StreamConfig{MaxAge: 300 * time.Millisecond})
		s.pub("s.a", "x")
		s.pub("s.b", "x")
		s.settle(0)
		s.pub("s.a", "x")
		s.state()
		s.settle(0)
	},
	"max age set later": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "x")
		s.pub("s.b", "x")
		s.update(func(c *server.StreamConfig) { c.Description = "nothing expires" })
		cfg := s.w.config(s.t)
		cfg.MaxAge, cfg.Duplicates = 200*time.Millisecond, 200*time.Millisecond
		s.line("%s", errorLine(s.w.update(s.t, cfg)))
		s.settle(0)
	},
	"max age and never": func(s *script) {
		s.create(server.StreamConfig{MaxAge: 300 * time.Millisecond, AllowMsgTTL: true})
		s.pub("s.a", "x")
		s.pub("s.b", "x", "Nats-TTL", "never")
		s.pub("s.a", "x")
		s.settle(1)
		s.message(2)
		s.pub("s.a", "x")
		s.settle(1)
	},
	"TTL passes": func(s *script) {
		s.create(server.StreamConfig{AllowMsgTTL: true})
		s.pub("s.a", "x", "Nats-TTL", "1")
		s.pub("s.a", "x", "Nats-TTL", "1h")
		s.pub("s.b", "x")
		s.settle(2)
		s.message(2)
	},
	"marker": func(s *script) {
		s.create(server.StreamConfig{SubjectDeleteMarkerTTL: time.Second})
		s.pub("s.a", "x", "Nats-TTL", "1")
		s.pub("s.b", "x", "Nats-TTL", "1")
		s.pub("s.b", "y")
		waitFor(s.t, "the marker", func() bool { return s.w.state(s.t).LastSeq == 4 })
		s.settle(2)
		s.message(4)
		s.settle(1)
	},
	"marker after max age": func(s *script) {
		s.create(server.StreamConfig{SubjectDeleteMarkerTTL: time.Second, MaxAge: 400 * time.Millisecond})
		s.pub("s.a", "x")
		waitFor(s.t, "the marker", func() bool { return s.w.state(s.t).LastSeq == 2 })
		s.message(2)
		s.settle(0)
	},
	"republish": func(s *script) {
		s.create(server.StreamConfig{RePublish: &server.RePublish{Source: "s.>", Destination: "copy.>"}})
		got := s.w.listen(s.t, "copy.>")
		s.pub("s.a", "one")
		s.pub("s.a", "two", "A", "b")
		s.pub("s.b", "three")
		for range 3 {
			s.heard(got)
		}
		s.update(func(c *server.StreamConfig) { c.RePublish.HeadersOnly = true })
		s.pub("s.a", "four", "A", "b")
		s.pub("s.a", "five")
		s.heard(got)
		s.heard(got)
		s.update(func(c *server.StreamConfig) { c.RePublish.Source = "s.b"; c.RePublish.Destination = "copy.only" })
		s.pub("s.a", "six")
		s.pub("s.b", "seven")
		s.heard(got)
		s.update(func(c *server.StreamConfig) { c.RePublish = nil })
		s.pub("s.b", "eight")
		s.line("%d more", len(got))
	},
	"dedup window": func(s *script) {
		s.create(server.StreamConfig{Duplicates: 200 * time.Millisecond})
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
		time.Sleep(500 * time.Millisecond)
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
		s.update(func(c *server.StreamConfig) { c.Duplicates = time.Hour })
		time.Sleep(500 * time.Millisecond)
		s.pub("s.a", "x", "Nats-Msg-Id", "a")
	},
	"marker TTL": func(s *script) {
		s.create(server.StreamConfig{SubjectDeleteMarkerTTL: 3600e9})
		s.pub("s.a", "x", "Nats-TTL", "60")
		s.pub("s.a", "x", "Nats-TTL", "2h")
		s.state()
	},
}

func TestScriptsAsNATS(t *testing.T) { runScripts(t, scripts) }

func runScripts(t *testing.T, scripts map[string]func(*script)) {
	t.Helper()
	for name, run := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWorlds(t, func(t *testing.T, w world) []string {
				t.Helper()
				s := &script{t: t, w: w}
				run(s)
				return s.lines
			})
		})
	}
}
