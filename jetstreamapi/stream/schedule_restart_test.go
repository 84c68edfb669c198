package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// scheduler is a stream with schedules on disk, which can be restarted.
type scheduler struct {
	*ours
	t     *testing.T
	dir   string
	store *storage.Store
}

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	s := &scheduler{ours: newOurs(t), t: t, dir: t.TempDir()}
	s.store = openStore(t, s.dir)
	s.ours.store = s.store
	t.Cleanup(func() {
		s.stream.Stop()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, AllowMsgSchedules: true}
	if err := s.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scheduler) restart() {
	s.t.Helper()
	reopened(s.t, s.dir, &s.store, s.ours, s.stream.Log().ID())
}

func (s *scheduler) schedule(subject, pattern, target string) {
	s.t.Helper()
	header := block("Nats-Schedule", pattern, "Nats-Schedule-Target", target)
	if got := s.publish(s.t, subject, header, "from "+subject); strings.Contains(got, "error") {
		s.t.Fatalf("%s: %s", pattern, got)
	}
}

// fired returns the messages that schedules made, as their subject and data.
func (s *scheduler) fired() (list []string) {
	s.t.Helper()
	last := s.state(s.t).LastSeq
	for seq := uint64(1); seq <= last; seq++ {
		if m := s.message(s.t, seq); strings.Contains(m, "Nats-Scheduler: ") {
			subject, _, _ := strings.Cut(m, " ")
			list = append(list, subject+m[strings.LastIndex(m, ` "`):])
		}
	}
	return list
}

// TestSchedulesSurviveARestart shows that what was scheduled is published once after a restart, what fired or ended
// before is not, and what became due meanwhile is at once.
func TestSchedulesSurviveARestart(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.schedule("s.soon", in(1500*time.Millisecond), "s.t1")
	s.schedule("s.meanwhile", in(600*time.Millisecond), "s.t2")
	s.schedule("s.purged", in(600*time.Millisecond), "s.t3")
	s.schedule("s.ended", in(600*time.Millisecond), "s.t4")
	s.schedule("s.cancelled", in(600*time.Millisecond), "s.t5")
	s.schedule("s.fires", in(0), "s.t6")
	s.schedule("s.later", in(time.Hour), "s.t7")
	waitFor(t, "the first to fire", func() bool { return len(s.fired()) == 1 })
	if _, err := s.purge(t, server.JSApiStreamPurgeRequest{Subject: "s.purged"}); err != nil {
		t.Fatal(err)
	}
	s.publish(t, "s.ended", nil, "x")
	s.publish(t, "s.other", block("Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.cancelled"), "x")
	s.stream.Stop()
	time.Sleep(700 * time.Millisecond)
	s.restart()
	s.restart()
	waitFor(t, "the others to fire", func() bool { return len(s.fired()) == 4 })
	time.Sleep(300 * time.Millisecond)
	want := []string{`s.t6 "from s.fires"`, `s.other "x"`, `s.t2 "from s.meanwhile"`, `s.t1 "from s.soon"`}
	got := s.fired()
	for _, w := range want {
		if !strings.Contains(fmt.Sprint(got), w) {
			t.Errorf("%s is missing of %q", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("fired %q, want %q", got, want)
	}
	if n := s.state(t).Subjects["s.later"]; n != 1 {
		t.Errorf("%d messages on the subject of the schedule to come, want 1", n)
	}
}

// TestARepeatingScheduleKeepsItsTime restarts between two of its messages.
func TestARepeatingScheduleKeepsItsTime(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.schedule("s.a", "@every 2s", "s.t")
	waitFor(t, "the first message", func() bool { return len(s.fired()) == 1 })
	next := s.nextOf(2)
	s.restart()
	waitFor(t, "the second message", func() bool { return len(s.fired()) == 2 })
	if late := time.Since(next); late < 0 || late > time.Second {
		t.Errorf("the second message came %s after its time", late)
	}
	if got, want := s.nextOf(3), next.Add(2*time.Second); !got.Equal(want) {
		t.Errorf("the third is for %s, want %s", got, want)
	}
}

// nextOf returns the time of the next message that the one at seq tells.
func (s *scheduler) nextOf(seq uint64) time.Time {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.message(s.t, seq), "Nats-Schedule-Next: ")
	text, _, _ := strings.Cut(rest, `\r`)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}

// TestManySchedules has many due at once, some of them replaced, and each fires once, in the order of their times.
func TestManySchedules(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	const n = 500
	start := time.Now().Add(1500 * time.Millisecond)
	at := func(i int) string {
		return "@at " + start.Add(time.Duration(n-i)*time.Millisecond).UTC().Format(time.RFC3339Nano)
	}
	var pubs []publication
	for i := range n {
		header := func(pattern string) []string {
			return []string{"Nats-Schedule", pattern, "Nats-Schedule-Target", "s.t"}
		}
		subject := fmt.Sprintf("s.%03d", i)
		if i%3 == 0 {
			pubs = append(pubs, publication{subject: subject, data: "old", header: header(at(0))})
		}
		pubs = append(pubs, publication{subject: subject, data: subject, header: header(at(i))})
	}
	s.send(pubs...)
	s.answers(t, len(pubs))
	waitFor(t, "all to fire", func() bool { return s.state(t).LastSeq == uint64(len(pubs)+n) })
	for i, m := range s.fired() {
		if want := fmt.Sprintf(`s.t "s.%03d"`, n-1-i); m != want {
			t.Fatalf("message %d is %s, want %s", i, m, want)
		}
	}
	if st := s.state(t); st.Msgs != n {
		t.Errorf("%d messages are left, want %d", st.Msgs, n)
	}
}

// TestARefusedMessageIsMadeLater takes the room away from a schedule's message and gives it back.
func TestARefusedMessageIsMadeLater(t *testing.T) {
	t.Parallel()
	w := newOurs(t)
	full := make(chan struct{})
	w.tweak = func(o *stream.Options) {
		o.Reserve = func(size int64) error {
			select {
			case <-full:
				return nil
			default:
			}
			if size > 150 { // the schedule has more headers than its message
				return nil
			}
			return server.NewJSAccountResourcesExceededError()
		}
	}
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, AllowMsgSchedules: true}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	w.publish(t, "s.a", block("Nats-Schedule", in(0), "Nats-Schedule-Target", "s.t", "Nats-Msg-Id", strings.Repeat("x", 50)), "x")
	time.Sleep(300 * time.Millisecond)
	if st := w.state(t); st.LastSeq != 1 || st.Msgs != 1 {
		t.Fatalf("%s, want the schedule alone", stateLine(st))
	}
	close(full)
	waitFor(t, "the message", func() bool { return w.state(t).LastSeq == 2 })
}

// TestWhatACrashLeftOfASchedule opens logs as a crash can leave them: a schedule's last message is there, the schedule
// not yet removed; and a schedule that an ordinary message ended. Neither may fire.
func TestWhatACrashLeftOfASchedule(t *testing.T) {
	schedule := block("Nats-Schedule", in(-time.Second), "Nats-Schedule-Target", "s.t", "Nats-Rollup", "sub")
	w := withLog(t, []storage.Record{
		{Key: []byte("s.fired"), Header: schedule},
		{Key: []byte("s.ended"), Header: schedule},
		{Key: []byte("s.t"), Header: block("Nats-Scheduler", "s.fired", "Nats-Schedule-Next", "purge")},
		{Key: []byte("s.ended"), Data: []byte("an ordinary message")},
		{Key: []byte("s.alive"), Header: schedule},
	})
	waitFor(t, "the one that is alive", func() bool { return w.state(t).LastSeq == 6 })
	time.Sleep(200 * time.Millisecond)
	wantLeft(t, w, 2, 3, 4, 6)
	if m := w.message(t, 6); !strings.Contains(m, "Nats-Scheduler: s.alive") {
		t.Errorf("message 6 is %s", m)
	}
}

// withLog opens a stream with schedules over a log that holds records.
func withLog(t *testing.T, records []storage.Record) *ours {
	t.Helper()
	w := newOurs(t)
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, AllowMsgSchedules: true}
	if err := stream.Complete(&cfg, false, stream.Limits{}); err != nil {
		t.Fatal(err)
	}
	spec := stream.LogSpec("$G", &cfg)
	spec.Shards = []storage.ShardID{0}
	log, err := w.store.CreateLog(spec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		r := &records[i]
		r.Seq, r.Time = uint64(i+1), time.Now().UnixNano()
		if err := log.Append(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	log.Sync(func(error) { close(done) })
	wait(t, done)
	w.start(t, cfg, log)
	return w
}

// TestSchedulesAreChangedWhileTheyAreLookedFor opens a long log whose schedules are at its end, and changes them before
// they are found there.
func TestSchedulesAreChangedWhileTheyAreLookedFor(t *testing.T) {
	const before = 40000
	records := make([]storage.Record, before, before+5)
	for i := range records {
		records[i].Key = []byte("s.other")
	}
	schedule := block("Nats-Schedule", in(-time.Second), "Nats-Schedule-Target", "s.t", "Nats-Rollup", "sub")
	for _, key := range []string{"s.ended", "s.cancelled", "s.replaced", "s.purged", "s.alive"} {
		records = append(records, storage.Record{Key: []byte(key), Header: schedule})
	}
	w := withLog(t, records)
	w.publish(t, "s.ended", nil, "an ordinary message")
	w.publish(t, "s.other", block("Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.cancelled"), "x")
	w.publish(t, "s.replaced", block("Nats-Schedule", in(time.Hour), "Nats-Schedule-Target", "s.t"), "x")
	if _, err := w.purge(t, server.JSApiStreamPurgeRequest{Subject: "s.purged"}); err != nil {
		t.Fatal(err)
	}
	if last := w.state(t).LastSeq; last != before+8 {
		t.Skipf("the log was looked through before the changes came (last sequence %d)", last)
	}
	waitFor(t, "the one that is alive", func() bool { return w.state(t).LastSeq > before+8 })
	time.Sleep(200 * time.Millisecond)
	if m := w.message(t, before+9); !strings.Contains(m, "Nats-Scheduler: s.alive") || w.state(t).LastSeq != before+9 {
		t.Errorf("the first to fire is %s, the last sequence %d", m, w.state(t).LastSeq)
	}
}
