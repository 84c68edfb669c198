package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// sealedStreams are the streams that are worked on.
func sealedStreams(l *ledger) []*sealedStream {
	type ops = []func(*sealedOp) error
	add := ops{(*sealedOp).publish, (*sealedOp).burst, (*sealedOp).burst, (*sealedOp).ack, (*sealedOp).ack}
	remove := ops{(*sealedOp).delete, (*sealedOp).purge}
	stream := func(cfg jetstream.StreamConfig, subjects int, m *sealedModel, list ...ops) *sealedStream {
		cfg.Subjects, cfg.AllowDirect = []string{cfg.Name + ".>"}, true
		cfg.MaxMsgsPerSubject, cfg.MaxMsgs, cfg.Duplicates = int64(m.perSubject), int64(m.most), time.Hour
		m.limits = cfg.Retention == jetstream.LimitsPolicy
		s := &sealedStream{ledger: l, cfg: cfg, model: m, ops: slices.Concat(list...), times: map[uint64]time.Time{}}
		for i := range subjects {
			s.subs = append(s.subs, fmt.Sprintf("%s.%c.%d", cfg.Name, 'a'+i%3, i))
		}
		return s
	}
	return []*sealedStream{
		stream(jetstream.StreamConfig{Name: "plain"}, 20,
			&sealedModel{consumers: []string{"plain.*.*", "plain.b.>", "plain.a.0"}},
			add, remove, ops{(*sealedOp).publishOnce, (*sealedOp).publishIf}),
		stream(jetstream.StreamConfig{Name: "subjects", AllowRollup: true}, 100,
			&sealedModel{perSubject: 3, consumers: []string{"subjects.>", "subjects.*.1"}},
			add, remove, ops{(*sealedOp).publishIf, (*sealedOp).rollUp}),
		stream(jetstream.StreamConfig{Name: "newest"}, 10,
			&sealedModel{most: 300, consumers: []string{"newest.c.>"}}, add, remove),
		stream(jetstream.StreamConfig{Name: "sums", AllowMsgCounter: true}, 5,
			&sealedModel{sums: map[string]int64{}}, ops{(*sealedOp).add}),
		stream(jetstream.StreamConfig{Name: "work", Retention: jetstream.WorkQueuePolicy}, 10,
			&sealedModel{consumers: []string{"work.a.>", "work.b.>", "work.c.>"}}, add, remove),
		stream(jetstream.StreamConfig{Name: "interest", Retention: jetstream.InterestPolicy}, 10,
			&sealedModel{consumers: []string{"interest.>", "interest.a.>"}}, add),
	}
}

func (s *sealedStream) consumer(ctx context.Context, t *testing.T, js jetstream.JetStream, i int, filter string) {
	t.Helper()
	_, err := js.CreateConsumer(ctx, s.cfg.Name, jetstream.ConsumerConfig{
		Durable: fmt.Sprintf("c%d", i), FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Second, MaxAckPending: -1,
	})
	noErr(t, err)
}

func (op *sealedOp) subject() string { return op.subs[op.rnd.IntN(len(op.subs))] }

// filter returns one that selects something.
func (op *sealedOp) filter() string {
	subject := op.subject()
	switch parts := strings.Split(subject, "."); op.rnd.IntN(4) {
	case 0:
		return op.cfg.Name + ".>"
	case 1:
		return parts[0] + "." + parts[1] + ".*"
	case 2:
		return parts[0] + ".*." + parts[2]
	}
	return subject
}

func (op *sealedOp) data() string {
	n := op.rnd.IntN(300)
	if op.rnd.IntN(50) == 0 {
		n = op.rnd.IntN(50_000)
	}
	return fmt.Sprintf("%d %0*d", op.rnd.Uint64(), n, 0)
}

// send publishes what step says and waits for its ack.
func (op *sealedOp) send(m *nats.Msg, did step) (*jetstream.PubAck, error) {
	op.open = append(op.open, did)
	ack, err := op.js.PublishMsg(op.ctx, m)
	if op.isRefused(err) {
		op.open = nil
	}
	if err != nil {
		return nil, err
	}
	op.settled()
	if ack.Sequence != op.model.last {
		op.problem("%s: %s is acknowledged with %d, want %d", op.cfg.Name, m.Subject, ack.Sequence, op.model.last)
	}
	return ack, nil
}

// isRefused reports whether err is the answer of a full disk.
func (op *sealedOp) isRefused(err error) bool {
	var api *jetstream.APIError
	if !op.mayFill || !errors.As(err, &api) || api.ErrorCode != 10077 {
		return false
	}
	return true
}

func (op *sealedOp) publish() error {
	subject, data := op.subject(), op.data()
	_, err := op.send(&nats.Msg{Subject: subject, Data: []byte(data)}, published(subject, data, ""))
	return err
}

// burst publishes many messages before it waits for their acks.
func (op *sealedOp) burst() error {
	var futures []jetstream.PubAckFuture
	for range 5 + op.rnd.IntN(60) {
		subject, data := op.subject(), op.data()
		op.open = append(op.open, published(subject, data, ""))
		f, err := op.js.PublishAsync(subject, []byte(data))
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	timeout := time.After(5 * time.Second)
	for _, f := range futures {
		select {
		case ack := <-f.Ok():
			op.open[0](op.model)
			if op.open = op.open[1:]; ack.Sequence != op.model.last {
				op.problem("%s: acknowledged with %d, want %d", op.cfg.Name, ack.Sequence, op.model.last)
			}
		case err := <-f.Err():
			if !op.isRefused(err) {
				return err
			}
			op.open = op.open[1:]
			op.refusals++
		case <-timeout:
			return nats.ErrTimeout
		}
	}
	return nil
}

// publishOnce publishes with an id, and again with that of a message that is there.
func (op *sealedOp) publishOnce() error {
	subject, data, id := op.subject(), op.data(), strconv.FormatUint(op.rnd.Uint64(), 36)
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{"Nats-Msg-Id": {id}}}
	if _, err := op.send(m, published(subject, data, id)); err != nil {
		return err
	}
	for range 5 {
		i := op.rnd.IntN(len(op.model.msgs))
		if old := op.model.msgs[i]; old.id != "" {
			m.Header.Set("Nats-Msg-Id", old.id)
			ack, err := op.js.PublishMsg(op.ctx, m)
			if err == nil && (!ack.Duplicate || ack.Sequence != old.seq) {
				op.problem("%s: a duplicate of %d was acknowledged with %+v", op.cfg.Name, old.seq, ack)
			}
			return err
		}
	}
	return nil
}

// publishIf publishes with the last sequence of the subject, after one with a wrong one.
func (op *sealedOp) publishIf() error {
	subject, data := op.subject(), op.data()
	last := op.model.lastOf(subject)
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{}}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(last+1+op.rnd.Uint64N(5), 10))
	var api *jetstream.APIError
	if _, err := op.js.PublishMsg(op.ctx, m); !errors.As(err, &api) || api.ErrorCode != 10071 {
		if err == nil {
			op.problem("%s: %s was published with a wrong expectation", op.cfg.Name, subject)
		}
		return err
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(last, 10))
	_, err := op.send(m, published(subject, data, ""))
	return err
}

func (op *sealedOp) rollUp() error {
	subject, data := op.subject(), op.data()
	how, filter := "sub", subject
	if op.rnd.IntN(20) == 0 {
		how, filter = "all", op.cfg.Name+".>"
	}
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{"Nats-Rollup": {how}}}
	_, err := op.send(m, rolledUp(filter, subject, data))
	return err
}

func (op *sealedOp) add() error {
	subject, n := op.subject(), op.rnd.Int64N(2000)-1000
	m := &nats.Msg{Subject: subject, Header: nats.Header{"Nats-Incr": {strconv.FormatInt(n, 10)}}}
	ack, err := op.send(m, added(subject, n))
	if err == nil && ack.Value != strconv.FormatInt(op.model.sums[subject], 10) {
		op.problem("sums: %s is at %s, want %d", subject, ack.Value, op.model.sums[subject])
	}
	return err
}

func (op *sealedOp) delete() error {
	for range 1 + op.rnd.IntN(10) {
		if len(op.model.msgs) == 0 {
			return nil
		}
		seq := op.model.msgs[op.rnd.IntN(len(op.model.msgs))].seq
		remove := op.st.DeleteMsg
		if op.rnd.IntN(2) == 0 {
			remove = op.st.SecureDeleteMsg
		}
		op.open = append(op.open, deletedSeq(seq))
		if err := remove(op.ctx, seq); err != nil {
			return err
		}
		op.settled()
	}
	return nil
}

// purge purges in all ways; seldom everything.
func (op *sealedOp) purge() error {
	if len(op.model.msgs) < 100 {
		return nil
	}
	filter, upTo, keep := op.cfg.Name+".>", uint64(0), 0
	var opts []jetstream.StreamPurgeOpt
	if op.rnd.IntN(3) > 0 {
		filter = op.filter()
		opts = append(opts, jetstream.WithPurgeSubject(filter))
	}
	switch op.rnd.IntN(10) {
	case 0:
	case 1, 2, 3, 4:
		keep = 1 + op.rnd.IntN(len(op.model.msgs))
		opts = append(opts, jetstream.WithPurgeKeep(uint64(keep)))
	default:
		upTo = op.model.msgs[op.rnd.IntN(len(op.model.msgs)/2)].seq
		opts = append(opts, jetstream.WithPurgeSequence(upTo))
	}
	op.open = append(op.open, purged(filter, upTo, keep))
	if err := op.st.Purge(op.ctx, opts...); err != nil {
		return err
	}
	op.settled()
	return nil
}

// ack takes messages with one of the consumers and acknowledges most of them.
func (op *sealedOp) ack() error {
	i := op.rnd.IntN(len(op.model.consumers))
	c, err := op.js.Consumer(op.ctx, op.cfg.Name, fmt.Sprintf("c%d", i))
	if err != nil {
		return err
	}
	batch, err := c.FetchNoWait(1 + op.rnd.IntN(60))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		seq := meta.Sequence.Stream
		at := op.model.find(seq)
		switch {
		case at < 0 || op.model.msgs[at].want>>i&1 == 0:
			op.problem("%s: c%d was given %d, which it has acknowledged or was removed", op.cfg.Name, i, seq)
		case op.model.msgs[at].data != string(m.Data()):
			op.problem("%s: c%d was given %.40q as %d", op.cfg.Name, i, m.Data(), seq)
		}
		if op.rnd.IntN(10) == 0 {
			continue
		}
		op.open = append(op.open, ackedBy(seq, i))
		ctx, cancel := context.WithTimeout(op.ctx, 3*time.Second)
		err = m.DoubleAck(ctx)
		cancel()
		if err != nil {
			return err
		}
		op.settled()
	}
	return batch.Error()
}
