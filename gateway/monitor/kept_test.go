package monitor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// held returns how many answers are kept, and their bytes.
func held(k *kept) (answers, bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.answers), k.bytes
}

// slowPage is an answer that takes long and says when it was begun.
type slowPage struct {
	mu    sync.Mutex // guards takes and err
	takes time.Duration
	err   error
	drawn atomic.Int32
}

func (s *slowPage) becomes(takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.err = takes, err
}

func (s *slowPage) draw() ([]byte, error) {
	s.drawn.Add(1)
	began := time.Now()
	s.mu.Lock()
	takes, err := s.takes, s.err
	s.mu.Unlock()
	time.Sleep(takes)
	return []byte(began.Format(time.RFC3339Nano)), err
}

// ask returns how long an answer took, and how old it was at its end.
func (s *slowPage) ask(t *testing.T, k *kept) (took, age time.Duration) {
	t.Helper()
	start := time.Now()
	body, err := k.get("key", s.draw)
	if err != nil {
		t.Fatal(err)
	}
	began, err := time.Parse(time.RFC3339Nano, string(body))
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(start), time.Since(began)
}

// Figures that are quickly there are never old.
func TestQuickAnswersAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kept
		s := &slowPage{takes: time.Millisecond}
		for range 5 {
			if _, age := s.ask(t, &k); age > time.Millisecond {
				t.Errorf("an answer is %v old", age)
			}
			time.Sleep(time.Millisecond)
		}
		if n, _ := held(&k); s.drawn.Load() != 5 || n != 0 {
			t.Errorf("drawn up %d times, %d kept", s.drawn.Load(), n)
		}
	})
}

// Once somebody asked for a slow answer, nobody waits for it again, none is older than the bound, and drawing up takes a
// part of the time only.
func TestSlowAnswersAreKeptFresh(t *testing.T) {
	for _, takes := range []time.Duration{keepFrom, 100 * time.Millisecond, 240 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var k kept
			defer k.close()
			s := &slowPage{takes: takes}
			start := time.Now()
			if took, _ := s.ask(t, &k); took != takes {
				t.Fatalf("the first answer took %v", took)
			}
			var oldest time.Duration
			for range 1000 {
				time.Sleep(100 * time.Millisecond)
				took, age := s.ask(t, &k)
				if took > 0 || age > keptMaxAge {
					t.Fatalf("after %v: took %v, is %v old", time.Since(start), took, age)
				}
				oldest = max(oldest, age)
			}
			if oldest < renewAfter {
				t.Errorf("no answer was older than %v", oldest)
			}
			if busy := time.Duration(s.drawn.Load()) * takes; busy > time.Since(start)/renewShare+takes {
				t.Errorf("%v of %v spent on drawing up", busy, time.Since(start))
			}
		})
	}
}

// An answer whose renewal takes too long is not given any more: who asks waits for a new one.
func TestLateRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kept
		defer k.close()
		s := &slowPage{takes: 20 * time.Millisecond}
		s.ask(t, &k)
		const late = 30 * time.Second
		s.becomes(late, nil)
		time.Sleep(4 * time.Second) // the renewal has begun
		if took, age := s.ask(t, &k); took != 0 || age > keptMaxAge {
			t.Errorf("took %v, is %v old", took, age)
		}
		time.Sleep(2 * time.Second)
		if took, age := s.ask(t, &k); took != late || age != late {
			t.Errorf("took %v, is %v old", took, age)
		}
	})
}

// What cannot be drawn up any more is an error for who asks next, not the figures of before.
func TestFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kept
		defer k.close()
		s := &slowPage{takes: 20 * time.Millisecond}
		s.ask(t, &k)
		gone := errors.New("gone")
		s.becomes(20*time.Millisecond, gone)
		time.Sleep(3 * time.Second)
		if body, err := k.get("key", s.draw); !errors.Is(err, gone) {
			t.Errorf("%q %v", body, err)
		}
		s.becomes(20*time.Millisecond, nil)
		s.ask(t, &k)
	})
}

func TestAnswersNobodyAsksForAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kept
		s := &slowPage{takes: 20 * time.Millisecond}
		s.ask(t, &k)
		time.Sleep(keptUnasked + 10*time.Second)
		n := s.drawn.Load()
		time.Sleep(time.Minute)
		if left, bytes := held(&k); s.drawn.Load() != n || left != 0 || bytes != 0 {
			t.Errorf("still drawn up: %d times, then %d; %d kept with %d bytes", n, s.drawn.Load(), left, bytes)
		}
		k.close()
	})
}

// However many different things are asked for, what is kept is bounded.
func TestKeptAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kept
		big := strings.Repeat("x", keptMaxBytes/4)
		for i := range 20 {
			body, err := k.get(fmt.Sprint(i), func() ([]byte, error) {
				time.Sleep(keepFrom)
				return []byte(big), nil
			})
			if err != nil || len(body) != len(big) {
				t.Fatal(len(body), err)
			}
		}
		if n, bytes := held(&k); n != 4 || bytes != keptMaxBytes {
			t.Errorf("%d kept with %d bytes", n, bytes)
		}
		k.close()
		if n, bytes := held(&k); n != 0 || bytes != 0 {
			t.Errorf("after the end %d kept with %d bytes", n, bytes)
		}
	})
}

// manyStreams is JetStream with so many streams of three consumers each.
type manyStreams struct {
	streams int
	drawn   atomic.Int32
}

func (m *manyStreams) Known() error                                        { return nil }
func (m *manyStreams) Healthz(*server.HealthzOptions) *server.HealthStatus { return nil }
func (m *manyStreams) Jsz(*server.JSzOptions) (*server.JSInfo, error) {
	m.drawn.Add(1)
	account := &server.AccountDetail{Id: "$G"}
	consumer := &server.ConsumerInfo{Config: &server.ConsumerConfig{Durable: "C"}}
	for i := range m.streams {
		name := fmt.Sprint("S", i)
		account.Streams = append(account.Streams, server.StreamDetail{
			Name: name, Config: &server.StreamConfig{Name: name, Retention: server.LimitsPolicy, Storage: server.FileStorage},
			Consumer: []*server.ConsumerInfo{consumer, consumer, consumer},
		})
	}
	return &server.JSInfo{AccountDetails: []*server.AccountDetail{account}}, nil
}

// discarded takes an answer without keeping it.
type discarded struct {
	header http.Header
	bytes  int
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(int)     {}
func (d *discarded) Write(b []byte) (int, error) {
	d.bytes += len(b)
	return len(b), nil
}

// What a request for /jsz with 1,000 streams and 3,000 consumers costs is that of handing over a page that is there: as
// many allocations as with one stream, and nothing drawn up.
func TestRequestsForManyStreamsCostWhatFewDo(t *testing.T) {
	cost := func(streams int) (allocations float64, size int, drawn int32) {
		js := &manyStreams{streams: streams}
		s := New(Options{Server: &server.Options{}, Core: &facts{}, JetStream: js, Logger: slog.New(slog.DiscardHandler), MetricsPort: -1})
		defer s.kept.close()
		handler := s.Handler()
		r := httptest.NewRequest(http.MethodGet, "/jsz?acc=%24G&config=true&consumers=true", nil)
		w := &discarded{header: http.Header{}}
		handler.ServeHTTP(w, r)
		size = w.bytes
		before := js.drawn.Load()
		allocations = testing.AllocsPerRun(100, func() { handler.ServeHTTP(w, r) })
		return allocations, size, js.drawn.Load() - before
	}
	few, small, _ := cost(1)
	many, large, drawn := cost(1000)
	t.Logf("one stream: %v allocations for %d bytes; 1,000: %v for %d, drawn up %d times in 101 requests", few, small, many, large, drawn)
	if large < 500*small {
		t.Fatalf("the page of 1,000 streams has %d bytes, that of one %d", large, small)
	}
	if many > few || drawn > 5 { // a renewal in the background, at most one a second
		t.Errorf("a request costs %v allocations, that for one stream %v; drawn up %d times", many, few, drawn)
	}
}

// BenchmarkKeptJsz compares a request for /jsz of 1,000 streams and 3,000 consumers, once it is kept, with one for the same
// bytes from a handler that does nothing else, over a connection.
func BenchmarkKeptJsz(b *testing.B) {
	s := New(Options{Server: &server.Options{}, Core: &facts{}, JetStream: &manyStreams{streams: 1000}, Logger: slog.New(slog.DiscardHandler)})
	defer s.kept.close()
	const query = "/jsz?acc=%24G&config=true&consumers=true"
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, query, nil))
	body := w.Body.Bytes()
	static := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for name, h := range map[string]http.Handler{"kept": s.Handler(), "bytes": static} {
		b.Run(name, func(b *testing.B) {
			srv := httptest.NewServer(h)
			defer srv.Close()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				resp, err := http.Get(srv.URL + query)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}
