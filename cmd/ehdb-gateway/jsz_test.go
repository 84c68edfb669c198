package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// populateMany makes streams with three consumers each.
func populateMany(t *testing.T, p *process, streams int) {
	t.Helper()
	js := p.jetStream()
	ctx := t.Context()
	var next atomic.Int32
	var makers sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		makers.Go(func() {
			for i := int(next.Add(1)) - 1; i < streams; i = int(next.Add(1)) - 1 {
				name := fmt.Sprint("S", i)
				s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
				for c := 0; c < 3 && err == nil; c++ {
					_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{
						Durable: fmt.Sprint("C", c), AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: fmt.Sprintf("%s.%d", name, c),
					})
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	makers.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
}

// TestJszOfManyStreams: with many streams and under load an autoscaler gets its figures at once, and what it gets is never
// older than a few seconds. EHDB_SLOW=1 makes it 1,000 streams with 3,000 consumers.
func TestJszOfManyStreams(t *testing.T) {
	streams := 100
	if os.Getenv("EHDB_SLOW") != "" {
		streams = 1000
	}
	p := start(t, "-js", "-sd", t.TempDir())
	populateMany(t, p, streams)
	js := p.jetStream()
	stop := make(chan struct{})
	var load sync.WaitGroup
	defer load.Wait()
	defer close(stop)
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f, err := js.PublishAsync("S1.1", []byte("load"))
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-f.Ok():
				case err := <-f.Err():
					t.Error(err)
					return
				}
			}
		})
	}
	const page = "/jsz?acc=%24G&config=true&consumers=true"
	ask := func() (took time.Duration, j server.JSInfo) {
		t.Helper()
		began := time.Now()
		code, _, body := get(t, p.http()+page)
		took = time.Since(began)
		if err := json.Unmarshal([]byte(body), &j); err != nil || code != http.StatusOK {
			t.Fatal(code, err)
		}
		return took, j
	}
	first, j := ask()
	if j.Streams != streams || j.Consumers != 3*streams || len(j.AccountDetails[0].Streams) != streams {
		t.Fatalf("%d streams, %d consumers", j.Streams, j.Consumers)
	}
	var took []time.Duration
	var oldest time.Duration
	for range 100 {
		d, j := ask()
		took, oldest = append(took, d), max(oldest, time.Since(j.Now))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(took)
	t.Logf("the first took %v, then: median %v, 99 of 100 within %v; the oldest figures were %v old", first, took[50], took[98], oldest)
	if oldest > 10*time.Second { // 5 s, on a machine that is busy
		t.Errorf("the oldest figures were %v old", oldest)
	}
	if took[50] > 500*time.Millisecond || took[98] > 5*time.Second {
		t.Errorf("median %v, 99 of 100 within %v", took[50], took[98])
	}
	// They move: what is published now is shown within the bound.
	if _, err := js.Publish(t.Context(), "S0.0", nil); err != nil {
		t.Fatal(err)
	}
	p.await("the new message", func() bool {
		_, j := ask()
		i := slices.IndexFunc(j.AccountDetails[0].Streams, func(s server.StreamDetail) bool { return s.Name == "S0" })
		return j.AccountDetails[0].Streams[i].Consumer[0].NumPending == 1
	})
}

// TestJszInLameDuckMode: a server that goes says so in plain text, on the pages that autoscalers read, and only there.
func TestJszInLameDuckMode(t *testing.T) {
	p := start(t, "-js", "-sd", t.TempDir(), "-c", ldmFile(t))
	populateMany(t, p, 1)
	lag := p.http() + "/api/v1/lag/$G/S0/C0"
	for _, url := range []string{p.http() + "/jsz", lag} {
		if code, _, _ := get(t, url); code != http.StatusOK {
			t.Errorf("%s: %d", url, code)
		}
	}
	p.signal(syscall.SIGUSR2)
	p.await("lame duck mode", func() bool { code, _, _ := get(t, p.http()+"/jsz"); return code != http.StatusOK })
	for _, url := range []string{p.http() + "/jsz", p.http() + "/jsz?acc=$G&consumers=1", lag} {
		code, header, body := get(t, url)
		if code != http.StatusServiceUnavailable || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") ||
			!strings.HasPrefix(body, "not ready: ") {
			t.Errorf("%s: %d %q", url, code, body)
		}
	}
	if code, _, _ := get(t, p.http()+"/varz"); code != http.StatusOK {
		t.Errorf("/varz: %d", code)
	}
}

// ldmFile is a configuration that keeps lame duck mode going for a while.
func ldmFile(t *testing.T) string {
	t.Helper()
	file := t.TempDir() + "/c.conf"
	if err := os.WriteFile(file, []byte("lame_duck_grace_period: 5s\nlame_duck_duration: 30s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
