package jetstreamapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/subjects"
)

// While some streams of an account are served from here and others by the servers that they are moved from, what
// clients ask about all of them (STREAM.NAMES, STREAM.LIST, INFO) is answered from both: each stream once, as it stands
// with who serves it.

// SetElsewhere says who has those streams that are not served from here. Without it there are none.
func (s *Service) SetElsewhere(e cutover.Elsewhere) { s.elsewhere.Store(&e) }

const (
	wholeWorkers = 4 // at once, for each account: they wait for the servers
	wholeTime    = 4 * time.Second
)

// asking is a question that the servers are asked, too.
type asking func(ctx context.Context, r *request, e cutover.Elsewhere, out *publisher) error

// wholes are these questions, and how they are answered.
var wholes = map[string]struct {
	typ   string
	serve asking
}{
	namesPattern: {server.JSApiStreamNamesResponseType, wholeNames},
	listPattern:  {server.JSApiStreamListResponseType, wholeList},
	infoPattern:  {server.JSApiAccountInfoResponseType, wholeInfo},
}

// whole returns what serves a request that others have to be asked for, nil if it is none.
func (a *account) whole(rt *route) func(*request, *publisher) {
	e := a.svc.elsewhere.Load()
	w, ok := wholes[rt.pattern]
	if e == nil || !ok || a.outsider {
		return nil
	}
	return func(r *request, out *publisher) {
		ctx, cancel := context.WithTimeout(a.svc.stopping, wholeTime)
		defer cancel()
		if err := w.serve(ctx, r, *e, out); err != nil {
			r.logger().Warn("The servers have to be asked about all streams, and do not answer", slog.Any("error", err))
			var resp jsapi.Response
			r.begin(&resp, &resp, w.typ)
			failed := *server.NewJSClusterNotAvailError()
			failed.Description += ": " + err.Error()
			r.fail(out, &failed)
		}
	}
}

// listed is a stream of the account.
type listed struct {
	name string
	here *streamEntry // nil: the servers serve it
	at   int          // its place in the servers' list, if they serve it
}

// everything returns all streams that store a subject, by name.
func (r *request) everything(ctx context.Context, e cutover.Elsewhere, subject string) ([]listed, error) {
	if one := r.only(e, subject); one != nil {
		return []listed{{name: one.name, here: one}}, nil
	}
	names, err := e.Names(ctx, r.acc.name, subject)
	if err != nil {
		return nil, err
	}
	var all []listed
	for i, name := range names {
		if !e.Here(r.acc.name, name) {
			all = append(all, listed{name: name, at: i})
		}
	}
	for _, s := range r.acc.sortedStreams(subject) {
		if e.Here(r.acc.name, s.name) {
			all = append(all, listed{name: s.name, here: s})
		}
	}
	slices.SortFunc(all, func(x, y listed) int { return strings.Compare(x.name, y.name) })
	return all, nil
}

// only returns the stream that is served from here and stores all of a subject, which no other stream can store then;
// nil if there is none.
func (r *request) only(e cutover.Elsewhere, subject string) *streamEntry {
	if subject == "" {
		return nil
	}
	for _, s := range r.acc.sortedStreams(subject) {
		covers := func(filter string) bool { return subjects.SubsetOf(subject, filter) }
		if e.Here(r.acc.name, s.name) && slices.ContainsFunc(s.config().Subjects, covers) {
			return s
		}
	}
	return nil
}

// wholeNames answers STREAM.NAMES.
func wholeNames(ctx context.Context, r *request, e cutover.Elsewhere, out *publisher) error {
	var resp jsapi.StreamNamesResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamNamesResponseType)
	var req jsapi.StreamNamesRequest
	if !r.admitted(out) || !r.decodeOptional(out, &req) {
		return nil
	}
	all, err := r.everything(ctx, e, req.Subject)
	if err != nil {
		return err
	}
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.NamesLimit)
	for _, s := range page(all, resp.ApiPaged) {
		resp.Streams = append(resp.Streams, s.name)
	}
	r.done(out)
	return nil
}

// wholeListResponse is a StreamListResponse whose infos are partly as the servers wrote them.
type wholeListResponse struct {
	jsapi.Response
	server.ApiPaged
	Streams []any             `json:"streams"`
	Missing []string          `json:"missing,omitempty"`
	Offline map[string]string `json:"offline,omitempty"`
}

// wholeList answers STREAM.LIST.
func wholeList(ctx context.Context, r *request, e cutover.Elsewhere, out *publisher) error {
	resp := wholeListResponse{Streams: []any{}}
	r.begin(&resp, &resp.Response, server.JSApiStreamListResponseType)
	var req jsapi.StreamListRequest
	if !r.admitted(out) || !r.decodeOptional(out, &req) {
		return nil
	}
	all, err := r.everything(ctx, e, req.Subject)
	if err != nil {
		return err
	}
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.ListLimit)
	shown := page(all, resp.ApiPaged)
	theirs, err := r.theirs(ctx, e, req.Subject, shown, &resp)
	if err != nil {
		return err
	}
	for _, s := range shown {
		switch info, served := theirs[s.name]; {
		case s.here != nil && s.here.offline != nil:
			resp.miss(s.name, s.here.offline.Error())
		case s.here != nil:
			resp.Streams = append(resp.Streams, s.here.info(s.here.state(false, "")))
		case served:
			resp.Streams = append(resp.Streams, info)
		}
	}
	r.done(out)
	return nil
}

func (l *wholeListResponse) miss(stream, why string) {
	if l.Offline == nil {
		l.Offline = make(map[string]string)
	}
	l.Offline[stream] = why
	l.Missing = append(l.Missing, stream)
}

// theirs returns those of the streams that the servers serve, as they list them, and notes which of these they miss.
func (r *request) theirs(
	ctx context.Context, e cutover.Elsewhere, subject string, shown []listed, resp *wholeListResponse,
) (map[string]json.RawMessage, error) {
	shown = slices.DeleteFunc(slices.Clone(shown), func(s listed) bool { return s.here != nil })
	if len(shown) == 0 {
		return nil, nil
	}
	first, last := shown[0].at, shown[len(shown)-1].at
	infos, err := e.Infos(ctx, r.acc.name, subject, first, last-first+1)
	if err != nil {
		return nil, err
	}
	for _, name := range infos.Missing {
		if why, down := infos.Offline[name]; down && !e.Here(r.acc.name, name) {
			resp.miss(name, why)
		} else if !e.Here(r.acc.name, name) {
			resp.Missing = append(resp.Missing, name)
		}
	}
	return byName(infos.Streams), nil
}

// byName orders infos of streams by their names.
func byName(infos []json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(infos))
	for _, raw := range infos {
		var i struct {
			Config struct {
				Name string `json:"name"`
			} `json:"config"`
		}
		if json.Unmarshal(raw, &i) == nil {
			out[i.Config.Name] = raw
		}
	}
	return out
}

// wholeInfo answers INFO: limits and calls of the API are the servers', and so is what is used, except that streams
// which are served from here use what they use here.
func wholeInfo(ctx context.Context, r *request, e cutover.Elsewhere, out *publisher) error {
	var resp jsapi.AccountInfoResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiAccountInfoResponseType)
	if !r.admitted(out) {
		return nil
	}
	st, err := e.Usage(ctx, r.acc.name)
	if err != nil {
		return err
	}
	names, err := e.Names(ctx, r.acc.name, "")
	if err != nil {
		return err
	}
	infos, err := e.Infos(ctx, r.acc.name, "", 0, len(names))
	if err != nil {
		return err
	}
	theirs := byName(infos.Streams)
	for _, name := range names {
		if !e.Here(r.acc.name, name) {
			continue
		}
		var info server.StreamInfo // stays empty if the servers cannot say more than that they have it
		_ = json.Unmarshal(theirs[name], &info)
		countUsage(st, &info, -1)
	}
	for _, s := range r.acc.sortedStreams("") {
		if e.Here(r.acc.name, s.name) && s.offline == nil {
			countUsage(st, s.info(s.state(false, "")), 1)
		}
	}
	resp.JetStreamAccountStats = st
	r.done(out)
	return nil
}

// countUsage adds what a stream uses to an account's figures, or takes it off them: sign is 1 or -1.
func countUsage(st *server.JetStreamAccountStats, i *server.StreamInfo, sign int64) {
	replicas := max(i.Config.Replicas, 1)
	count := func(t *server.JetStreamTier) {
		t.Streams += int(sign)
		t.Consumers += int(sign) * i.State.Consumers
		used, reserved := &t.Store, &t.ReservedStore
		if i.Config.Storage == server.MemoryStorage {
			used, reserved = &t.Memory, &t.ReservedMemory
		}
		bytes := int64(i.State.Bytes) * int64(replicas)                            //nolint:gosec // bytes on disks
		*used = nonNegative(int64(*used) + sign*bytes)                             //nolint:gosec // as above
		*reserved = nonNegative(int64(*reserved) + sign*max(i.Config.MaxBytes, 0)) //nolint:gosec // as above
	}
	count(&st.JetStreamTier)
	name := fmt.Sprintf("R%d", replicas)
	if t, ok := st.Tiers[name]; ok {
		count(&t)
		st.Tiers[name] = t
	}
}
