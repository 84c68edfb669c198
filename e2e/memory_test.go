package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMemoryBudget: with encryption and compression on, what the gateway takes stays within ehdb.memory and 128 MiB
// while messages are published, after a SIGKILL, and while all of them are asked for. With EHDB_SLOW there are two million of
// them on 100,000 subjects.
func TestMemoryBudget(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the gateway's budget")
	}
	n, subjects := 200_000, 10_000
	if os.Getenv("EHDB_SLOW") != "" {
		n, subjects = 2_000_000, 100_000
	}
	const memory, beside = 64, 128 // MiB
	dir := t.TempDir()
	conf := filepath.Join(dir, "memory.conf")
	noErr(t, os.WriteFile(conf, fmt.Appendf(nil, `jetstream { enabled: true, key: "a secret of its own", cipher: aes }
		ehdb { allow_tmp_store: true, memory: %dMB }
	`, memory), 0o600))
	p := startGateway(t, dir, "-c", conf)
	within := func(when string) {
		t.Helper()
		mib := float64(usage(p)[0]) / (1 << 10)
		t.Logf("%-24s %6.1f MiB", when, mib)
		if mib == 0 || mib > memory+beside {
			t.Errorf("%s: %.1f MiB, more than %d", when, mib, memory+beside)
		}
	}
	nc := connect(t, p.URL)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	noErr(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Compression: jetstream.S2Compression,
	})
	noErr(t, err)
	text := strings.Repeat("what is easy to compress, ", 5)
	for i := range n {
		subject := fmt.Sprintf("s.%d.item", uint32(i*7919)%uint32(subjects))
		_, err := js.PublishAsync(subject, fmt.Appendf(nil, "%s%d", text, i), jetstream.WithStallWait(time.Minute))
		noErr(t, err)
		if i > 0 && i%(n/4) == 0 {
			within(fmt.Sprint("after ", i))
		}
	}
	<-js.PublishAsyncComplete()
	within("published")
	p.Kill()
	p = startGateway(t, dir, "-c", conf)
	within("after a SIGKILL")
	nc = connect(t, p.URL)
	js, err = jetstream.New(nc)
	noErr(t, err)
	s, err := js.Stream(t.Context(), "S")
	noErr(t, err)
	if got := s.CachedInfo().State.Msgs; got != uint64(n) {
		t.Fatalf("%d messages, want %d", got, n)
	}
	for i := range 2000 {
		_, err := s.GetLastMsgForSubject(t.Context(), fmt.Sprintf("s.%d.item", i*37%subjects))
		noErr(t, err)
	}
	within("after lookups")
	c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	noErr(t, err)
	for got := 0; got < n; {
		batch, err := c.Fetch(10_000, jetstream.FetchMaxWait(30*time.Second))
		noErr(t, err)
		for range batch.Messages() {
			got++
		}
		if batch.Error() != nil && !errors.Is(batch.Error(), nats.ErrTimeout) {
			t.Fatal(batch.Error())
		}
	}
	within("after reading all")
}
