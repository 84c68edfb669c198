package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// manyStreams is how many streams TestManyStreams makes.
func manyStreams() int {
	if os.Getenv("EHDB_SLOW") != "" {
		return 10_000
	}
	return 400
}

// TestManyStreams makes many streams, publishes to each and has all of it sealed; kills the gateway and reads each back.
// What the gateway holds for them, idle, does not depend on their number: open files, mappings and goroutines. A start
// has nothing to read again, and is soon done.
func TestManyStreams(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	const each = 3
	n, dir := manyStreams(), t.TempDir()
	conf := filepath.Join(dir, "many.conf")
	noErr(t, os.WriteFile(conf, []byte(`ehdb { allow_tmp_store: true, seal_max_age: "500ms" }`), 0o600))
	p := startGateway(t, dir, "-c", conf)
	began := time.Now()
	eachStream(t, p, n, func(ctx context.Context, js jetstream.JetStream, name string) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		return err
	})
	t.Logf("%d streams made in %v", n, time.Since(began))
	began = time.Now()
	eachStream(t, p, n, func(ctx context.Context, js jetstream.JetStream, name string) error {
		for i := range each {
			if _, err := js.Publish(ctx, fmt.Sprintf("%s.%d", name, i), []byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d messages published to each in %v", each, time.Since(began))
	for metric(t, p, "ehdb_storage_unsealed_records") > 0 { // the test's own bound ends it if that is never
		time.Sleep(50 * time.Millisecond)
	}
	held(t, p)
	p.Kill()
	began = time.Now()
	p = startGateway(t, dir, "-c", conf)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.Stream(ctx, "S0")
	noErr(t, err)
	t.Logf("start in %v", time.Since(began))
	if again := metric(t, p, "ehdb_storage_recovered_records"); again > 100 {
		t.Errorf("a start reads %v records again", again)
	}
	eachStream(t, p, n, func(ctx context.Context, js jetstream.JetStream, name string) error {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if st := s.CachedInfo().State; st.Msgs != each || st.LastSeq != each || st.NumSubjects != each {
			return fmt.Errorf("%s: %+v", name, st)
		}
		m, err := s.GetLastMsgForSubject(ctx, name+".1")
		if err == nil && (m.Sequence != 2 || string(m.Data) != name) {
			err = fmt.Errorf("%s: message %d has %q", name, m.Sequence, m.Data)
		}
		return err
	})
	held(t, p)
}

// eachStream calls fn for every stream, several at a time.
func eachStream(t *testing.T, p *process, n int, fn func(ctx context.Context, js jetstream.JetStream, name string) error) {
	t.Helper()
	js, _ := jetStream(t, connect(t, p.URL))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const workers = 32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += workers {
				if err := fn(ctx, js, fmt.Sprintf("S%d", i)); err != nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	wg.Wait()
	noErr(t, ctx.Err())
}

// held demands that the gateway holds a number of files, mappings and goroutines that any number of streams could have.
func held(t *testing.T, p *process) {
	t.Helper()
	use := usage(p)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	noErr(t, err)
	mappings, goroutines := strings.Count(string(maps), "\n"), metric(t, p, "go_goroutines")
	t.Logf("%d MiB, %d files, %d mappings, %v goroutines", use[0]>>10, use[1], mappings, goroutines)
	if use[1] > 120 || mappings > 300 || goroutines > 120 {
		t.Errorf("%d files, %d mappings, %v goroutines", use[1], mappings, goroutines)
	}
}

// metric returns a figure of the metrics page.
func metric(t *testing.T, p *process, name string) float64 {
	t.Helper()
	resp, err := http.Get(p.Monitor + "/metrics")
	noErr(t, err)
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if text, ok := strings.CutPrefix(sc.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			noErr(t, err)
			return v
		}
	}
	t.Fatalf("no %s on the metrics page", name)
	return 0
}
