package jetstreamapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// info asks a real server for a stream, with the deleted sequences.
func (o *oracle) info(tb testing.TB, name string) *server.StreamInfo {
	tb.Helper()
	var resp jsapi.StreamInfoResponse
	a := o.request(tb, "$JS.API.STREAM.INFO."+name, "", `{"deleted_details":true}`)
	if err := json.Unmarshal([]byte(a.data), &resp); err != nil || resp.Error != nil {
		tb.Fatalf("info of %s: %v %v", name, err, resp.Error)
	}
	return resp.StreamInfo
}

// record reads one record of a real server; nil: there is none.
func (o *oracle) record(tb testing.TB, name string, seq uint64) *cutover.Record {
	tb.Helper()
	var resp server.JSApiMsgGetResponse
	a := o.request(tb, "$JS.API.STREAM.MSG.GET."+name, "", fmt.Sprintf(`{"seq":%d}`, seq))
	if err := json.Unmarshal([]byte(a.data), &resp); err != nil {
		tb.Fatal(err)
	}
	if resp.Error != nil {
		if resp.Error.ErrCode != uint16(server.JSNoMessageFoundErr) {
			tb.Fatalf("message %d of %s: %v", seq, name, resp.Error)
		}
		return nil
	}
	m := resp.Message
	return &cutover.Record{
		Seq: m.Sequence, Time: m.Time.UnixNano(), Subject: []byte(m.Subject), Header: m.Header, Data: m.Data,
	}
}

// mirror makes a standby of a real server's stream and brings it up to its state.
func mirror(tb testing.TB, o *oracle, l cutover.Local, name string) cutover.Copy {
	tb.Helper()
	info := o.info(tb, name)
	c, err := l.Create(tb.Context(), "$G", &info.Config, info.Created, 1)
	if err != nil {
		tb.Fatal(err)
	}
	catchUp(tb, o, c, name)
	return c
}

// catchUp brings a standby up to the state of a real server's stream.
func catchUp(tb testing.TB, o *oracle, c cutover.Copy, name string) {
	tb.Helper()
	st := o.info(tb, name).State
	at, _ := c.Progress()
	for seq := at + 1; seq <= st.LastSeq; seq++ {
		if r := o.record(tb, name, seq); r != nil {
			if n, _, err := c.Apply([]cutover.Record{*r}); n != 1 || err != nil {
				tb.Fatalf("message %d of %s: %d done, %v", seq, name, n, err)
			}
		}
	}
	var errs []error
	if st.LastSeq > 0 {
		errs = append(errs, c.Advance(st.LastSeq, st.LastTime.UnixNano()))
	}
	errs = append(errs, c.Remove(st.Deleted), c.RemoveBelow(st.FirstSeq), c.Durable(tb.Context(), st.LastSeq))
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// sameState compares all of a state, and the records.
func sameState(tb testing.TB, o *oracle, c cutover.Copy, name string) {
	tb.Helper()
	want := o.info(tb, name)
	got, err := c.State(tb.Context(), true)
	if err != nil {
		tb.Fatal(err)
	}
	if want.State.LastSeq == 0 { // nats-server shows sequence 0 of an empty stream as deleted
		want.State.NumDeleted, want.State.Deleted = 0, nil
	}
	if g, w := asJSON(got), asJSON(want.State); g != w {
		tb.Errorf("state of %s\n%s\nwant\n%s", name, g, w)
	}
	if g, w := asJSON(c.Config()), asJSON(withoutVersions(want.Config)); g != w {
		tb.Errorf("configuration of %s\n%s\nwant\n%s", name, g, w)
	}
	if !c.Created().Equal(want.Created) {
		tb.Errorf("%s was created %v, want %v", name, c.Created(), want.Created)
	}
	next := max(want.State.FirstSeq, 1)
	err = c.Read(tb.Context(), 0, func(r *cutover.Record, err error) bool {
		if err != nil {
			tb.Error(err)
			return false
		}
		var w *cutover.Record
		for ; w == nil && next <= want.State.LastSeq; next++ {
			w = o.record(tb, name, next)
		}
		if w == nil || text(r) != text(w) {
			tb.Errorf("record %s\nwant %s", text(r), text(w))
			return false
		}
		one, err := c.Get(tb.Context(), r.Seq)
		if err != nil || text(one) != text(w) {
			tb.Errorf("got record %s, %v\nwant %s", text(one), err, text(w))
		}
		return true
	})
	if err != nil {
		tb.Error(err)
	}
	for ; next <= want.State.LastSeq; next++ {
		if r := o.record(tb, name, next); r != nil {
			tb.Errorf("record %d is missing", next)
		}
	}
}

// text shows a record.
func text(r *cutover.Record) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%d %d %s %q %q", r.Seq, r.Time, r.Subject, r.Header, r.Data)
}

func withoutVersions(cfg server.StreamConfig) server.StreamConfig {
	cfg.Metadata = withoutServer(cfg.Metadata)
	return cfg
}

func must[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func testStandby(tb testing.TB, l cutover.Local, cfg server.StreamConfig) cutover.Copy {
	tb.Helper()
	c, err := l.Create(tb.Context(), "$G", &cfg, time.Unix(1, 2), 1)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func plainConfig(name string, change func(*server.StreamConfig)) server.StreamConfig {
	cfg := server.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Storage: server.FileStorage, Replicas: 3, MaxConsumers: -1, MaxMsgs: -1,
		MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Duplicates: 2 * time.Minute, AllowDirect: true,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func applySome(tb testing.TB, c cutover.Copy, subject string, seqs ...uint64) {
	tb.Helper()
	var batch []cutover.Record
	for _, seq := range seqs {
		batch = append(batch, cutover.Record{
			Seq: seq, Time: time.Now().UnixNano(), Subject: []byte(subject), Data: fmt.Appendf(nil, "m%d", seq),
			Header: fmt.Appendf(nil, "NATS/1.0\r\nNats-Msg-Id: id%d\r\n\r\n", seq),
		})
	}
	if n, _, err := c.Apply(batch); n != len(batch) || err != nil {
		tb.Fatalf("%d of %d applied: %v", n, len(batch), err)
	}
	if err := c.Durable(tb.Context(), seqs[len(seqs)-1]); err != nil {
		tb.Fatal(err)
	}
}
