package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// direct asks for many messages at once, again and again until there are no more.
func (op *sealedOp) direct(req map[string]any) (list []sealedMsg, err error) {
	sub, err := op.nc.SubscribeSync(op.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	for {
		b, err := json.Marshal(req)
		if err != nil {
			return nil, err
		}
		if err := op.nc.PublishRequest("$JS.API.DIRECT.GET."+op.cfg.Name, sub.Subject, b); err != nil {
			return nil, err
		}
		more := false
		for {
			m, err := sub.NextMsg(5 * time.Second)
			if err != nil {
				return nil, fmt.Errorf("direct get %s: %w", b, err)
			}
			switch m.Header.Get("Status") {
			case "":
				s, at, err := parseDirect(m)
				if err != nil {
					return nil, err
				}
				list = append(list, s)
				op.seen(s.seq, at)
				continue
			case "404":
			case "204":
				more = m.Header.Get("Nats-Num-Pending") != "0"
			default:
				return nil, fmt.Errorf("direct get %s: %v", b, m.Header)
			}
			break
		}
		if !more || len(list) == 0 {
			return list, nil
		}
		req["seq"] = list[len(list)-1].seq + 1
	}
}

func parseDirect(m *nats.Msg) (s sealedMsg, at time.Time, err error) {
	s = sealedMsg{subject: m.Header.Get("Nats-Subject"), data: string(m.Data), id: m.Header.Get("Nats-Msg-Id")}
	if s.seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
		return s, at, fmt.Errorf("%w: %v", err, m.Header)
	}
	at, err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	return s, at, err
}

// seen checks that a message's time never changes.
func (op *sealedOp) seen(seq uint64, at time.Time) {
	if old, ok := op.times[seq]; ok && !old.Equal(at) {
		op.problem("%s: the time of %d was %v and is %v", op.cfg.Name, seq, old, at)
	}
	op.times[seq] = at
}

// gets reads messages by sequence, there or not.
func (op *sealedOp) gets() error {
	for range 20 {
		seq := 1 + op.rnd.Uint64N(op.model.last+2)
		i := op.model.find(seq)
		m, err := op.st.GetMsg(op.ctx, seq)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			if i >= 0 {
				op.problem("%s: %d is not found", op.cfg.Name, seq)
			}
		case err != nil:
			return err
		case i < 0:
			op.problem("%s: %d is there, although it was removed", op.cfg.Name, seq)
		default:
			op.seen(seq, m.Time)
			if w := op.model.msgs[i]; string(m.Data) != w.data || m.Subject != w.subject {
				op.problem("%s: %d is %s %.40q, want %s %.40q", op.cfg.Name, seq, m.Subject, m.Data, w.subject, w.data)
			}
		}
	}
	return nil
}

func (op *sealedOp) last() error {
	for range 10 {
		subject := op.subject()
		want, got := op.model.lastOf(subject), uint64(0)
		m, err := op.st.GetLastMsgForSubject(op.ctx, subject)
		if err == nil {
			got = m.Sequence
		} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
		if got != want {
			op.problem("%s: the last of %s is %d, want %d", op.cfg.Name, subject, got, want)
		}
	}
	return nil
}

func (op *sealedOp) next() error {
	for range 10 {
		filter, from := op.filter(), 1+op.rnd.Uint64N(op.model.last+1)
		want := op.model.matching(filter, from)
		if n := 1 + op.rnd.IntN(30); len(want) > n {
			want = want[:n]
		}
		if len(want) == 0 {
			continue
		}
		m, err := op.st.GetMsg(op.ctx, from, jetstream.WithGetMsgSubject(filter))
		if err != nil {
			return fmt.Errorf("next of %s from %d: %w", filter, from, err)
		}
		if m.Sequence != want[0].seq {
			op.problem("%s: next of %s from %d is %d, want %d", op.cfg.Name, filter, from, m.Sequence, want[0].seq)
		}
	}
	filter := op.filter()
	got, err := op.direct(map[string]any{"seq": 1, "batch": 50, "next_by_subj": filter})
	op.same("batch of "+filter, got, op.model.matching(filter, 0))
	return err
}

func (op *sealedOp) same(what string, got, want []sealedMsg) {
	if !slices.EqualFunc(got, want, func(a, b sealedMsg) bool { return a.seq == b.seq && a.data == b.data }) {
		op.problem("%s: %s: %v, want %v", op.cfg.Name, what, seqs(got), seqs(want))
	}
}

func seqs(list []sealedMsg) (out []uint64) {
	for _, s := range list {
		out = append(out, s.seq)
	}
	return out
}

func (op *sealedOp) multiLast() error {
	filter := op.filter()
	upTo := 1 + op.rnd.Uint64N(op.model.last+1)
	newest := map[string]sealedMsg{}
	for _, s := range op.model.matching(filter, 0) {
		if s.seq <= upTo {
			newest[s.subject] = s
		}
	}
	var want []sealedMsg
	for _, s := range newest {
		want = append(want, s)
	}
	slices.SortFunc(want, func(a, b sealedMsg) int { return int(int64(a.seq) - int64(b.seq)) })
	got, err := op.direct(map[string]any{"multi_last": []string{filter}, "up_to_seq": upTo, "batch": 1000})
	op.same(fmt.Sprintf("multi_last of %s up to %d", filter, upTo), got, want)
	return err
}

// read reads with a consumer of a random kind, whose pending counts must be exact.
func (op *sealedOp) read() error {
	if !op.model.limits {
		return nil
	}
	filter := op.filter()
	cfg := jetstream.ConsumerConfig{FilterSubject: filter, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true}
	want := op.model.matching(filter, 0)
	switch op.rnd.IntN(4) {
	case 1:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 1+op.rnd.Uint64N(op.model.last+1)
		want = op.model.matching(filter, cfg.OptStartSeq)
	case 2:
		cfg.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
		want = slices.DeleteFunc(want, func(s sealedMsg) bool { return op.model.lastOf(s.subject) != s.seq })
	case 3:
		if len(want) > 0 {
			at := op.times[want[op.rnd.IntN(len(want))].seq]
			cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
			want = slices.DeleteFunc(want, func(s sealedMsg) bool { return op.times[s.seq].Before(at) })
		}
	}
	c, err := op.js.CreateConsumer(op.ctx, op.cfg.Name, cfg)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("consumer %s %s %d", filter, cfg.DeliverPolicy, cfg.OptStartSeq)
	if n := c.CachedInfo().NumPending; n != uint64(len(want)) {
		op.problem("%s: %s: %d pending, want %d", op.cfg.Name, what, n, len(want))
	}
	var got []sealedMsg
	for len(got) < len(want) {
		batch, err := c.Fetch(min(500, len(want)-len(got)), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		before := len(got)
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			got = append(got, sealedMsg{seq: meta.Sequence.Stream, data: string(m.Data())})
			op.seen(meta.Sequence.Stream, meta.Timestamp)
			if left := len(want) - len(got); meta.NumPending != uint64(left) {
				op.problem("%s: %s: at %d %d pending, want %d", op.cfg.Name, what, meta.Sequence.Stream, meta.NumPending, left)
			}
		}
		if len(got) == before {
			break
		}
	}
	op.same(what, got, want)
	return op.js.DeleteConsumer(op.ctx, op.cfg.Name, c.CachedInfo().Name)
}

// left checks what the durable consumers have still to do.
func (op *sealedOp) left() error {
	var got []uint64
	for i := range op.model.consumers {
		c, err := op.js.Consumer(op.ctx, op.cfg.Name, fmt.Sprintf("c%d", i))
		if err != nil {
			return err
		}
		got = append(got, c.CachedInfo().NumPending+uint64(c.CachedInfo().NumAckPending))
	}
	if op.other != nil && slices.Equal(got, op.other.left()) {
		op.model = op.other
	}
	op.other = nil
	if want := op.model.left(); !slices.Equal(got, want) {
		op.problem("%s: the consumers have %v to do, want %v", op.cfg.Name, got, want)
	}
	return nil
}
