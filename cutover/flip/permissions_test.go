package flip_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestPermissionsTakenAway: what a user may do is changed on the servers, by a reload, while a stream is served from here.
// It holds here too, for clients that stay connected, as soon as the servers are asked again.
func TestPermissionsTakenAway(t *testing.T) {
	rights := func(publish, subscribe string) []*server.User {
		return []*server.User{
			{Username: "ehdb", Password: "x"},
			{Username: "u", Password: "x", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{publish, "$JS.API.>", "$JS.ACK.>", "$SYS.REQ.USER.INFO"}},
				Subscribe: &server.SubjectPermission{Allow: []string{subscribe, "_INBOX.>"}},
			}},
		}
	}
	of := &server.Options{Users: rights("orders.>", "orders.>"), NoAuthUser: "ehdb"}
	r := newRigWith(t, of, &server.Options{PingInterval: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	own, err := r.connect(r.gw.ClientURL()).JetStream()
	check(t, err)
	_, err = own.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	var mu sync.Mutex
	var told []string
	nc := r.connect(r.gw.ClientURL(), nats.UserInfo("u", "x"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, err.Error())
	}))
	js, err := nc.JetStream(nats.MaxWait(500 * time.Millisecond))
	check(t, err)
	sub, err := nc.SubscribeSync("orders.>")
	check(t, err)
	check(t, nc.Flush())
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	_, err = js.Publish("orders.x", nil)
	check(t, err)
	_, err = sub.NextMsg(5 * time.Second)
	check(t, err)

	reload := func(publish, subscribe string) {
		next := of.Clone()
		next.Users = rights(publish, subscribe)
		check(t, r.nats.ReloadOptions(next))
	}
	reload("other.>", "other.>")
	until(t, "it may not publish any more", func() bool {
		_, err := js.Publish("orders.x", nil)
		return err != nil
	})
	last, err := own.Publish("orders.x", nil)
	check(t, err)
	_, err = js.Publish("orders.x", nil)
	if err == nil {
		t.Error("it has published")
	}
	time.Sleep(100 * time.Millisecond)
	for {
		m, err := sub.NextMsg(50 * time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrPermissionViolation) || err != nil {
			break
		}
		if len(m.Data) > 0 {
			t.Errorf("it gets %q", m.Data)
		}
	}
	info, err := own.StreamInfo("ORDERS")
	check(t, err)
	if info.State.LastSeq != last.Sequence {
		t.Errorf("%d messages, %d were stored", info.State.LastSeq, last.Sequence)
	}
	mu.Lock()
	all := strings.Join(told, "\n")
	mu.Unlock()
	if strings.Contains(all, "USER.INFO") || !strings.Contains(all, "orders.") {
		t.Errorf("the client was told:\n%s", all)
	}
	reload("orders.>", "orders.>")
	until(t, "it may publish again", func() bool {
		_, err := js.Publish("orders.x", nil)
		return err == nil
	})
	next := of.Clone()
	next.Users = rights("orders.>", "orders.>")
	next.Users[1].Permissions.Publish.Allow = []string{"orders.>", "$JS.API.>", "$JS.ACK.>"}
	check(t, r.nats.ReloadOptions(next))
	until(t, "nobody knows what it may do", func() bool {
		_, err := js.Publish("orders.x", nil)
		return err != nil
	})
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(told, "\n"); strings.Contains(all, "USER.INFO") {
		t.Errorf("the client was told:\n%s", all)
	}
}
