package pilot_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// A canary of a whole stream serves all of its consumers that can be, and says of each what became of it; when one cannot
// be taken none is. It is ended as it was begun.
func TestCanaryOfAStream(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 10)
	if _, err := r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name}); !errors.Is(err, face.ErrRefused) ||
		!strings.Contains(err.Error(), "has none at all") {
		t.Error(err)
	}
	var consumers []jetstream.Consumer
	for _, durable := range []string{"a", "b", "c"} {
		c, err := r.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy})
		check(t, err)
		consumers = append(consumers, c)
	}
	_, err := r.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy})
	check(t, err)
	until(t, "it is copied", func() bool { return r.state(name).EHDB.Last == 10 })
	served := func() (list []string) {
		for _, c := range r.state(name).Canaries {
			list = append(list, c.Consumer)
		}
		return list
	}

	// The second one is deleted while the first is taken: it cannot be, so neither stays.
	r.slow.Store(int64(50 * time.Millisecond))
	gone := make(chan error)
	go func() {
		for r.event("canary") == "" && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		gone <- r.js.DeleteConsumer(ctx, "S", "b")
	}()
	_, err = r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name})
	if !errors.Is(err, face.ErrUnknown) || !strings.Contains(err.Error(), "consumer b, so none of $G/S is served from here") {
		t.Error(err)
	}
	check(t, <-gone)
	r.slow.Store(0)
	if list := served(); len(list) > 0 {
		t.Fatal(list)
	}
	if e := r.event("canary_end"); !strings.Contains(e, "consumer b could not be taken: all or none") {
		t.Error(e)
	}
	consumers[1], err = r.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "b", AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	if _, err := r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name, Abort: []string{"G99"}}); !errors.Is(err, face.ErrRefused) {
		t.Error(err)
	}
	if list := served(); len(list) > 0 {
		t.Fatal(list)
	}

	list, err := r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name})
	check(t, err)
	if undo := r.state(name).Undo; undo != "ehdbctl canary rm --scope 'consumer=$G/S/c'" {
		t.Error(undo)
	}
	if len(list) != 4 || !list[0].Served || !list[1].Served || !list[2].Served || list[3].Consumer != "none" || list[3].Served ||
		!strings.Contains(list[3].Why, "ack policy") {
		t.Errorf("%+v", list)
	}
	if got := strings.Join(served(), ","); got != "a,b,c" {
		t.Errorf("%s", got)
	}
	for _, c := range consumers {
		n := 0
		batch, err := c.Fetch(10)
		check(t, err)
		for m := range batch.Messages() {
			check(t, m.DoubleAck(ctx))
			n++
		}
		if n != 10 || batch.Error() != nil {
			t.Errorf("%d %v", n, batch.Error())
		}
	}
	list, err = r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name, Remove: true})
	check(t, err)
	if len(list) != 3 || len(served()) > 0 {
		t.Errorf("%+v", list)
	}
	if _, err := r.pilot.Canary(ctx, face.CanaryRequest{Actor: ann, Scope: name, Remove: true}); !errors.Is(err, face.ErrRefused) {
		t.Error(err)
	}
}
