package flip_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestHolesAndLimits: where messages are removed from streams that keep only so many, or that nobody may purge, both
// sides have the same messages all the same.
func TestHolesAndLimits(t *testing.T) {
	r := newRig(t)
	hurry := func(k *ride, tail string, n int) {
		for i := range n {
			if _, err := k.old.PublishAsync(k.subject(tail), fmt.Append(nil, i)); err != nil {
				k.Errorf("publish: %v", err)
			}
		}
		<-k.old.PublishAsyncComplete()
	}
	kinds := []streamKind{
		{name: "few messages", config: jetstream.StreamConfig{MaxMsgs: 20}, work: func(k *ride, _ int) {
			k.put(15, "a", "x")
			for range 5 {
				k.remove(k.publish("a", "y"))
			}
			k.put(5, "b", "x")
		}},
		{name: "few messages removed late", config: jetstream.StreamConfig{MaxMsgs: 20}, work: func(k *ride, _ int) {
			k.put(15, "a", "x")
			k.putAndRemove(5)
			k.put(5, "b", "x")
		}},
		{name: "few messages per subject", config: jetstream.StreamConfig{MaxMsgsPerSubject: 5}, work: func(k *ride, _ int) {
			k.put(2, "a", "x")
			k.putAndRemove(3)
			k.put(3, "a", "x")
		}},
		{name: "few messages in a hurry", config: jetstream.StreamConfig{MaxMsgs: 20, MaxMsgsPerSubject: 1}, work: func(k *ride, _ int) {
			for i := range 15 {
				k.put(1, fmt.Sprint("k", i), "x")
			}
			hurry(k, "a", 500)
			k.put(1, "b", "x")
		}},
		{name: "few messages in a hurry deny delete", config: jetstream.StreamConfig{MaxMsgs: 20, MaxMsgsPerSubject: 1, DenyDelete: true}, work: func(k *ride, _ int) {
			for i := range 15 {
				k.put(1, fmt.Sprint("k", i), "x")
			}
			hurry(k, "a", 500)
			k.put(1, "b", "x")
		}},
		{name: "few messages deny purge", config: jetstream.StreamConfig{MaxMsgs: 20, DenyPurge: true}, work: func(k *ride, _ int) {
			k.put(15, "a", "x")
			k.putAndRemove(5)
			k.put(5, "b", "x")
		}},
		{name: "few messages in a hurry deny purge", config: jetstream.StreamConfig{MaxMsgs: 20, MaxMsgsPerSubject: 1, DenyPurge: true}, work: func(k *ride, _ int) {
			for i := range 15 {
				k.put(1, fmt.Sprint("k", i), "x")
			}
			hurry(k, "a", 100)
			k.put(1, "b", "x")
		}},
		{name: "deny purge", config: jetstream.StreamConfig{DenyPurge: true}, work: func(k *ride, round int) {
			first := k.publish("a", "x")
			k.put(5, "a", "x")
			if round == 1 {
				for seq := uint64(1); seq <= first; seq++ {
					if _, err := k.stream.GetMsg(k.Context(), seq); err == nil {
						k.remove(seq)
					}
				}
			}
		}},
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, kind := range kinds {
		all.Go(func() {
			t.Run(kind.name, func(t *testing.T) {
				k := r.newRide(t, kind.config)
				k.watch()
				for round := range 4 {
					kind.work(k, round)
					k.move()
				}
				k.alike()
			})
		})
	}
}

// TestHolesBesideFullSubjects: where all subjects of a stream are in use, what makes holes drops no message of them.
func TestHolesBesideFullSubjects(t *testing.T) {
	r := newRig(t)
	for name, cfg := range map[string]jetstream.StreamConfig{
		"lit":   {MaxMsgsPerSubject: 2, Subjects: []string{"lit.a", "lit.b"}},
		"mixed": {MaxMsgsPerSubject: 2, Subjects: []string{"mixed.a", "mixed.b.>"}},
		"den":   {MaxMsgsPerSubject: 2, DenyDelete: true, Subjects: []string{"den.a", "den.b"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := r.newRide(t, cfg)
			sub := func(s string) string { return name + "." + s }
			b := sub("b")
			if name == "mixed" {
				b += ".x"
			}
			k.watch()
			for range 4 {
				for range 2 {
					_, err := k.js.Publish(k.Context(), sub("a"), []byte("x"))
					check(t, err)
				}
				for i := range 300 {
					_, err := k.old.PublishAsync(b, fmt.Append(nil, i))
					check(t, err)
				}
				<-k.old.PublishAsyncComplete()
				k.move()
			}
			k.alike()
		})
	}
}

// putAndRemove publishes messages, and removes them once all are there.
func (k *ride) putAndRemove(n int) {
	var list []uint64
	for range n {
		list = append(list, k.publish("a", "y"))
	}
	for _, seq := range list {
		k.remove(seq)
	}
}
