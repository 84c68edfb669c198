package origin

import (
	"context"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Next returns the first record at or after seq: cutover.ErrNoRecord if there is none.
func (s *Stream) Next(ctx context.Context, seq uint64) (*cutover.Record, error) {
	return s.next(ctx, max(seq, 1))
}

// Last returns the last record of a subject: cutover.ErrNoRecord if there is none.
func (s *Stream) Last(ctx context.Context, subject string) (*cutover.Record, error) {
	var resp server.JSApiMsgGetResponse
	req := server.JSApiMsgGetRequest{LastFor: subject}
	if err := s.c.ask(ctx, "STREAM.MSG.GET."+s.name, &req, &resp, &resp.ApiResponse); err != nil {
		return nil, err
	}
	m := resp.Message
	if m == nil {
		return nil, cutover.ErrNoRecord
	}
	return &cutover.Record{
		Seq: m.Sequence, Time: m.Time.UnixNano(), Subject: []byte(m.Subject), Header: m.Header, Data: m.Data,
	}, nil
}

// Subjects returns the subjects of records that match a filter, most of them at most.
func (s *Stream) Subjects(ctx context.Context, filter string, most int) ([]string, error) {
	var out []string
	for {
		info, total, err := s.subjects(ctx, filter, len(out))
		if err != nil {
			return nil, s.c.fail(s.name, "listing its subjects", err)
		}
		for subject := range info {
			out = append(out, subject)
		}
		switch {
		case len(out) > most || total > most:
			return nil, fmt.Errorf("%d subjects match, and %d are the most", max(total, len(out)), most)
		case len(info) == 0 || len(out) >= total:
			return out, nil
		}
	}
}

func (s *Stream) subjects(ctx context.Context, filter string, offset int) (map[string]uint64, int, error) {
	var resp server.JSApiStreamInfoResponse
	req := server.JSApiStreamInfoRequest{
		ApiPagedRequest: server.ApiPagedRequest{Offset: offset}, SubjectsFilter: filter,
	}
	if err := s.c.ask(ctx, "STREAM.INFO."+s.name, &req, &resp, &resp.ApiResponse); err != nil {
		return nil, 0, err
	}
	if resp.StreamInfo == nil {
		return nil, 0, nil
	}
	return resp.State.Subjects, resp.Total, nil
}
