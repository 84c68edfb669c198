package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func jetStream(t testing.TB, nc *nats.Conn) (jetstream.JetStream, context.Context) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return js, ctx
}

func TestKeyValue(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "B", History: 3})
		noErr(t, err)
		watch, err := kv.WatchAll(ctx)
		noErr(t, err)
		step := func(what string, rev uint64, err error) { tr.Add("%s: %d %v", what, rev, err) }
		rev, err := kv.Put(ctx, "a", []byte("1"))
		step("put", rev, err)
		rev, err = kv.Create(ctx, "a", []byte("2"))
		step("create existing", rev, err)
		rev, err = kv.Update(ctx, "a", []byte("2"), 1)
		step("update", rev, err)
		rev, err = kv.Update(ctx, "a", []byte("3"), 1)
		step("update stale", rev, err)
		rev, err = kv.Create(ctx, "b.c", []byte("x"))
		step("create", rev, err)
		step("delete", 0, kv.Delete(ctx, "a"))
		rev, err = kv.Create(ctx, "a", []byte("again"))
		step("create deleted", rev, err)
		step("purge", 0, kv.Purge(ctx, "b.c"))
		for _, k := range []string{"a", "b.c", "none"} {
			v, err := kv.Get(ctx, k)
			if err != nil {
				tr.Add("get %s: %v", k, err)
				continue
			}
			tr.Add("get %s: %s rev %d op %v", k, v.Value(), v.Revision(), v.Operation())
		}
		keys, err := kv.Keys(ctx)
		tr.Add("keys %v %v", keys, err)
		hist, err := kv.History(ctx, "a")
		noErr(t, err)
		for _, h := range hist {
			tr.Add("history %d %s %v", h.Revision(), h.Value(), h.Operation())
		}
		for range 7 {
			select {
			case u := <-watch.Updates():
				if u == nil {
					tr.Add("watch: initial done")
					continue
				}
				tr.Add("watch %s %s rev %d op %v", u.Key(), u.Value(), u.Revision(), u.Operation())
			case <-time.After(30 * time.Second):
				t.Fatal("the watcher is silent")
			}
		}
		st, err := kv.Status(ctx)
		noErr(t, err)
		tr.Add("status %d values, history %d, bytes %d", st.Values(), st.History(), st.Bytes())
		step("purge deletes", 0, kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1)))
		keys, err = kv.Keys(ctx)
		tr.Add("keys %v %v", keys, err)
	})
}

func TestObjectStore(t *testing.T) {
	data := make([]byte, 700_000)
	_, err := rand.Read(data)
	noErr(t, err)
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		os, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "O"})
		noErr(t, err)
		info, err := os.Put(ctx, jetstream.ObjectMeta{Name: "big", Description: "d"}, bytes.NewReader(data))
		noErr(t, err)
		tr.Add("put %d bytes %d chunks %s", info.Size, info.Chunks, info.Digest)
		got, err := os.GetBytes(ctx, "big")
		noErr(t, err)
		tr.Add("same: %v", bytes.Equal(got, data))
		_, err = os.PutString(ctx, "small", "hello")
		noErr(t, err)
		list, err := os.List(ctx)
		noErr(t, err)
		for _, o := range list {
			tr.Add("list %s %d", o.Name, o.Size)
		}
		noErr(t, os.Delete(ctx, "big"))
		_, err = os.GetBytes(ctx, "big")
		tr.Add("deleted: %v", err)
		noErr(t, os.Seal(ctx))
		_, err = os.PutString(ctx, "late", "x")
		tr.Add("sealed: %v", err)
		st, err := os.Status(ctx)
		noErr(t, err)
		tr.Add("status sealed %v size %d", st.Sealed(), st.Size())
	})
}
