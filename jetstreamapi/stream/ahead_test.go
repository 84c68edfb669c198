package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestNoReadsUnderTheLock: while a publish waits for a part to be read, the stream serves whoever needs its lock.
func TestNoReadsUnderTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		want   string
	}{
		"a subject":      {[]string{"Nats-Expected-Last-Subject-Sequence", "2"}, `{"seq":11,"stream":"S"}`},
		"a dedup window": {[]string{"Nats-Msg-Id", "id-2"}, `{"duplicate":true,"seq":3,"stream":"S"}`},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewFault(vfs.NewMem(), nil)
			opened := func() *storage.Store {
				st, err := storage.Open(t.Context(), storage.Options{
					Dir: "/data", FS: fs, SegmentSize: 1 << 20, Seal: true, SealMaxAge: time.Hour,
				})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			w := newOurs(t)
			w.store = opened()
			if err := w.create(t, server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage}); err != nil {
				t.Fatal(err)
			}
			large := strings.Repeat("x", 100_000) // a block of a part each
			for i := range 10 {
				var header []byte
				if i < 9 { // else the window is read at the start
					header = block("Nats-Msg-Id", fmt.Sprint("id-", i))
				}
				w.publish(t, fmt.Sprint("s.", i), header, large)
			}
			cfg, id := w.stream.Config(), w.stream.Log().ID()
			w.stream.Stop()
			if err := w.store.Close(); err != nil { // seals
				t.Fatal(err)
			}
			w.store = opened()
			defer w.store.Close()
			log, err := w.store.OpenLog(id, stream.LogSpec("$G", &cfg))
			if err != nil {
				t.Fatal(err)
			}
			w.start(t, cfg, log)
			defer w.stream.Stop()

			reading, release := make(chan struct{}, 100), make(chan struct{})
			fs.SetHook(func(op vfs.Op) error {
				if op.Kind == vfs.OpRead && strings.Contains(op.Path, "parts") {
					reading <- struct{}{}
					<-release
				}
				return nil
			})
			answer := make(chan string, 1)
			go func() {
				m := bus.Msg{
					Subject: []byte("s.1"), Reply: []byte("_INBOX.c.b0"), Header: block(c.header...), Data: []byte("x"),
				}
				w.client.session.Publish(&m)
				w.client.session.Flush()
				answer <- w.raw(t)
			}()
			wait(t, reading)
			free := make(chan struct{})
			go func() {
				w.stream.Attach(nil, nil)() // takes the lock
				close(free)
			}()
			select {
			case <-free:
			case <-time.After(patience):
				t.Error("the stream is locked while a part is read")
			}
			close(release)
			if got := canonical(<-answer); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
