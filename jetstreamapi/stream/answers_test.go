package stream

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"
)

// TestAnswerQueue compares the queue with a plain list: what comes out, when, in what order, with which texts.
func TestAnswerQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			wait  uint64
			texts string
		}
		var (
			q       answerQueue
			waiting []entry
			head    uint64
			visible uint64
			n       int
		)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n++
				head += uint64(rapid.IntRange(0, 2).Draw(t, "seqs"))
				e := entry{wait: rapid.Uint64Range(0, head).Draw(t, "wait"), texts: fmt.Sprintf("r%dh%dd%d", n, n, n)}
				q.push(answer{kind: answerRepublish, wait: e.wait}, fmt.Appendf(nil, "r%d", n), fmt.Appendf(nil, "h%d", n), fmt.Appendf(nil, "d%d", n))
				waiting = append(waiting, e)
			},
			"commit": func(t *rapid.T) { visible = rapid.Uint64Range(visible, head).Draw(t, "visible") },
			"take": func(t *rapid.T) {
				most := rapid.IntRange(1, 4).Draw(t, "most")
				due := len(waiting) > 0 && waiting[0].wait <= visible
				if q.ready(visible) != due {
					t.Fatalf("ready = %v, want %v", !due, due)
				}
				list, text := q.take(visible, most, nil, nil)
				got := string(text)
				want := ""
				for i := 0; i < most && len(waiting) > 0 && waiting[0].wait <= visible; i++ {
					want += waiting[0].texts
					waiting = waiting[1:]
				}
				if got != want {
					t.Fatalf("took %q (%d), want %q", got, len(list), want)
				}
			},
			"": func(t *rapid.T) {
				if q.len() != len(waiting) {
					t.Fatalf("%d answers, want %d", q.len(), len(waiting))
				}
			},
		})
	})
}

func TestAnswersFail(t *testing.T) {
	var q answerQueue
	q.push(answer{kind: answerAck, wait: 1, seq: 1}, []byte("a"), nil, nil)
	q.push(answer{kind: answerAck, wait: 2, seq: 2}, []byte("b"), nil, nil)
	q.push(answer{kind: answerRepublish, wait: 2}, []byte("c"), nil, nil)
	q.push(answer{kind: answerError, wait: 2, err: server.NewJSStreamSealedError()}, []byte("d"), nil, nil)
	q.failed = errors.New("gone")
	list, _ := q.take(1, 10, nil, nil)
	if len(list) != 4 || list[0].kind != answerAck || list[2].kind != answerNone || list[3].err.ErrCode != 10109 {
		t.Fatalf("got %+v", list)
	}
	if list[1].kind != answerError || list[1].err.ErrCode != 10077 || list[1].err.Description != "gone" {
		t.Errorf("what will never be durable is answered with %+v", list[1])
	}
}

func TestAnswersBound(t *testing.T) {
	var q answerQueue
	for !q.full() {
		if q.len() == answersStall && q.stall() == nil {
			t.Fatal("nobody is asked to pause")
		}
		q.push(answer{kind: answerAck}, nil, nil, nil)
	}
	if q.len() != answersMax {
		t.Errorf("full at %d", q.len())
	}
	room := q.stall()
	q.take(0, answersMax-answersStall/2+1, nil, nil)
	select {
	case <-room:
	default:
		t.Error("the pause does not end when the queue has drained")
	}
}

func TestDedupe(t *testing.T) {
	d := dedupe{window: 100}
	for i := range 5000 {
		now := int64(i)
		d.expire(now)
		d.remember(fmt.Appendf(nil, "id-%d", i), uint64(i), now)
		if len(d.seqs) > 100 || len(d.queue) > 300 {
			t.Fatalf("%d ids are remembered in a list of %d", len(d.seqs), len(d.queue))
		}
	}
	for i := 4901; i < 5000; i++ {
		if got := d.find(fmt.Appendf(nil, "id-%d", i)); got != uint64(i) {
			t.Fatalf("id-%d: %d", i, got)
		}
	}
	if d.find([]byte("id-4899")) != 0 {
		t.Error("an id outlives the window")
	}
	d.expire(1 << 40)
	if _, ok := d.oldest(); ok || len(d.seqs) != 0 {
		t.Error("ids are left")
	}
}
