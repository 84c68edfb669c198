package jetstreamapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// readAll takes steps until there is nothing more for now, and writes them down: "3" is a message, "1-2" is missing.
func readAll(t *testing.T, r *Reader) string {
	t.Helper()
	var out []string
	for {
		s, err := r.Next()
		switch {
		case err != nil:
			return strings.Join(append(out, "ended"), " ")
		case s.Record != nil:
			out = append(out, fmt.Sprint(s.Record.Seq))
		case s.Missing != 0:
			out = append(out, fmt.Sprintf("%d-%d", s.Missing, s.Upto))
		default:
			return strings.Join(append(out, fmt.Sprintf("upto %d", s.Upto)), " ")
		}
	}
}

func newReader(t *testing.T, s *Service, cfg server.ConsumerConfig) *Reader {
	t.Helper()
	r, err := s.Read("$G", "S", &cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// readerService is a service with a stream S of s.> and a client that publishes to it.
func readerService(t *testing.T, more string) (*Service, *party) {
	t.Helper()
	b := bus.NewRouter()
	s := startService(t, testOptions(b, t.TempDir()))
	p := newParty(t, b, "$G")
	p.must(t, nil, "$JS.API.STREAM.CREATE.S", `{"name":"S","subjects":["s.>"]`+more+`}`)
	return s, p
}

func (p *party) store(t *testing.T, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		p.must(t, nil, s, "x")
	}
}

func TestReaderBeginsAndGoesOn(t *testing.T) {
	s, p := readerService(t, "")
	p.store(t, "s.a", "s.b", "s.a", "s.c", "s.b")
	p.must(t, nil, "$JS.API.STREAM.MSG.DELETE.S", `{"seq":2}`)
	at := time.Now()
	cases := map[string]struct {
		cfg   server.ConsumerConfig
		first string
		then  string // after another s.a, s.b and the deletion of the s.b
	}{
		"all":              {server.ConsumerConfig{DeliverPolicy: server.DeliverAll}, "1 3 4 5 upto 5", "6 7-7 upto 7"},
		"new":              {server.ConsumerConfig{DeliverPolicy: server.DeliverNew}, "upto 5", "6 7-7 upto 7"},
		"last":             {server.ConsumerConfig{DeliverPolicy: server.DeliverLast}, "5 upto 5", "6 7-7 upto 7"},
		"last_per_subject": {server.ConsumerConfig{DeliverPolicy: server.DeliverLastPerSubject}, "3 4 5 upto 5", "6 7-7 upto 7"},
		"a sequence": {
			server.ConsumerConfig{DeliverPolicy: server.DeliverByStartSequence, OptStartSeq: 2}, "2-2 3 4 5 upto 5", "6 7-7 upto 7",
		},
		"a later sequence": {
			server.ConsumerConfig{DeliverPolicy: server.DeliverByStartSequence, OptStartSeq: 8}, "upto 7", "upto 7",
		},
		"a time": {
			server.ConsumerConfig{DeliverPolicy: server.DeliverByStartTime, OptStartTime: &at}, "upto 5", "6 7-7 upto 7",
		},
		"a filter": {
			server.ConsumerConfig{DeliverPolicy: server.DeliverAll, FilterSubject: "s.b"}, "5 upto 5", "upto 7",
		},
		"two filters": {
			server.ConsumerConfig{DeliverPolicy: server.DeliverAll, FilterSubjects: []string{"s.b", "s.c"}}, "4 5 upto 5", "upto 7",
		},
	}
	readers := map[string]*Reader{}
	for name, c := range cases {
		readers[name] = newReader(t, s, c.cfg)
		if got := readAll(t, readers[name]); got != c.first {
			t.Errorf("%s: %q, want %q", name, got, c.first)
		}
	}
	p.store(t, "s.a", "s.b")
	p.must(t, nil, "$JS.API.STREAM.MSG.DELETE.S", `{"seq":7}`)
	for name, r := range readers {
		if got := readAll(t, r); got != cases[name].then {
			t.Errorf("%s: then %q, want %q", name, got, cases[name].then)
		}
	}
}

// TestReaderTellsWhatIsMissing: what was purged before a reader came to it, is told, with filters as far as it can be
// known: from the place where the reader was to where the stream begins.
func TestReaderTellsWhatIsMissing(t *testing.T) {
	s, p := readerService(t, "")
	all := newReader(t, s, server.ConsumerConfig{DeliverPolicy: server.DeliverNew})
	some := newReader(t, s, server.ConsumerConfig{DeliverPolicy: server.DeliverNew, FilterSubject: "s.b"})
	p.store(t, "s.a", "s.b", "s.a", "s.b", "s.b")
	p.must(t, nil, "$JS.API.STREAM.PURGE.S", `{"seq":3}`)
	p.must(t, nil, "$JS.API.STREAM.MSG.DELETE.S", `{"seq":4}`)
	for name, c := range map[string]struct {
		r    *Reader
		want string
	}{
		"all": {all, "1-2 3 4-4 5 upto 5"}, "a filter": {some, "1-2 5 upto 5"}, // 4 was inside: its subject is gone
	} {
		if got := readAll(t, c.r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	p.store(t, "s.a", "s.b")
	p.must(t, nil, "$JS.API.STREAM.PURGE.S", "")
	for name, r := range map[string]*Reader{"all": all, "a filter": some} {
		if got := readAll(t, r); got != "6-7 upto 7" {
			t.Errorf("%s: %q after everything was purged", name, got)
		}
	}
}

// TestReaderIsWoken: a reader hears of what is new, and that its stream is gone.
func TestReaderIsWoken(t *testing.T) {
	s, p := readerService(t, "")
	r := newReader(t, s, server.ConsumerConfig{DeliverPolicy: server.DeliverNew})
	readAll(t, r)
	woken := func(what string) {
		t.Helper()
		select {
		case <-r.Wake():
		case <-time.After(answerTimeout):
			t.Fatal(what)
		}
	}
	p.store(t, "s.a")
	woken("not by a message")
	if got := readAll(t, r); got != "1 upto 1" {
		t.Error(got)
	}
	p.must(t, nil, "$JS.API.STREAM.DELETE.S", "")
	for got := ""; got != "ended"; got = readAll(t, r) {
		woken("not by the end")
	}
	if _, err := s.Read("$G", "S", &server.ConsumerConfig{}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := s.Read("none", "S", &server.ConsumerConfig{}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestReaderCountsForNothing: a reader does not keep messages in an interest stream, and takes none from a work queue.
func TestReaderCountsForNothing(t *testing.T) {
	s, p := readerService(t, `,"retention":"interest"`)
	r := newReader(t, s, server.ConsumerConfig{DeliverPolicy: server.DeliverAll})
	p.store(t, "s.a")
	var info server.StreamInfo
	p.must(t, &info, "$JS.API.STREAM.INFO.S", "")
	if info.State.Msgs != 0 || info.State.Consumers != 0 {
		t.Errorf("%+v", info.State)
	}
	if got := readAll(t, r); !strings.HasSuffix(got, "upto 1") {
		t.Error(got)
	}
}

// TestReaderAgainstRandomChanges: whatever is published, deleted and purged, a reader is given or told missing every
// sequence exactly once, in order, and what it is told missing is not there.
func TestReaderAgainstRandomChanges(t *testing.T) {
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a test
	t.Logf("seed %d", seed)
	s, p := readerService(t, `,"max_msgs_per_subject":8`)
	subjects := []string{"s.a", "s.b", "s.c"}
	all := newReader(t, s, server.ConsumerConfig{DeliverPolicy: server.DeliverByStartSequence, OptStartSeq: 1})
	some := newReader(t, s, server.ConsumerConfig{
		DeliverPolicy: server.DeliverByStartSequence, OptStartSeq: 1, FilterSubject: "s.a",
	})
	var last, seen, seenOfA uint64
	check := func(r *Reader, seen *uint64, exact bool) {
		for range rnd.IntN(6) {
			step, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			from := step.Missing
			switch {
			case step.Record != nil:
				from = step.Upto
			case step.Missing == 0:
				if !exact || step.Upto == *seen {
					*seen = step.Upto
					return
				}
				t.Fatalf("up to %d without a word about what is after %d", step.Upto, *seen)
			default:
				for seq := step.Missing; seq <= step.Upto; seq++ {
					if rec, err := r.log.Get(seq); err == nil && (exact || string(rec.Key) == "s.a") {
						t.Fatalf("%d is not missing", seq)
					}
				}
			}
			if from <= *seen || exact && from != *seen+1 {
				t.Fatalf("%+v after %d", step, *seen)
			}
			*seen = step.Upto
		}
	}
	for range 3000 {
		switch n := rnd.IntN(20); {
		case n < 10:
			p.store(t, subjects[rnd.IntN(len(subjects))])
			last++
		case n < 12 && last > 0:
			p.request(t, "$JS.API.STREAM.MSG.DELETE.S", "", fmt.Sprintf(`{"seq":%d}`, 1+rnd.Uint64N(last)))
		case n == 12:
			p.must(t, nil, "$JS.API.STREAM.PURGE.S", fmt.Sprintf(`{"keep":%d}`, rnd.IntN(20)))
		case n == 13:
			p.must(t, nil, "$JS.API.STREAM.PURGE.S", fmt.Sprintf(`{"filter":%q}`, subjects[rnd.IntN(3)]))
		default:
			check(all, &seen, true)
			check(some, &seenOfA, false)
		}
	}
	for seen < last || seenOfA < last {
		check(all, &seen, true)
		check(some, &seenOfA, false)
	}
}
