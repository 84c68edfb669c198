package flip_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestFillersStayAway: what the chain stores on the servers in the place of messages that are gone here, and deletes, is
// not there when the servers are killed: they forget what a limit has dropped.
func TestFillersStayAway(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "V", History: 3})
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "KV_V"}
	check(t, r.engine.Watch(ctx, name, "test"))
	_, err = r.engine.Flip(ctx, name, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	const puts = 2000
	for i := range puts { // at once, so that most are gone before the chain comes to them
		_, err := js.PublishAsync("$KV.V.k", fmt.Append(nil, i))
		check(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	alone := func(at *nats.Conn) string {
		there, err := jetstream.New(at)
		check(t, err)
		s, err := there.Stream(ctx, "KV_V")
		check(t, err)
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		check(t, err)
		if len(info.State.Subjects) == 1 && info.State.LastSeq == puts {
			return ""
		}
		return fmt.Sprintf("%d messages up to %d of %d subjects", info.State.Msgs, info.State.LastSeq, len(info.State.Subjects))
	}
	for alone(r.conn) != "" {
		check(t, ctx.Err())
		time.Sleep(10 * time.Millisecond)
	}
	dir := t.TempDir() // what is on disk at that time is what a kill leaves
	check(t, os.CopyFS(dir, os.DirFS(r.nats.StoreDir())))
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
	})
	check(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	if what := alone(r.connect(ns.ClientURL())); what != "" {
		t.Error(what)
	}
	e, err := kv.Get(ctx, "k")
	check(t, err)
	if string(e.Value()) != fmt.Sprint(puts-1) {
		t.Errorf("the key is %s", e.Value())
	}
}
