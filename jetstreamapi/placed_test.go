package jetstreamapi

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

// everyShard places streams into all shards, the last first.
type everyShard struct{ hashPlacement }

func (everyShard) Shards(_, _ string, _ []string, n int) (out []uint32) {
	for i := n; i > 0; i-- {
		out = append(out, uint32(i-1)) //nolint:gosec // a shard number
	}
	return out
}

// Where a stream would be is where it is once it was made, also when the map is another by then.
func TestPlaced(t *testing.T) {
	dir := t.TempDir()
	open := func(p Placement) *Service {
		t.Helper()
		s := New(Options{
			Bus: bus.NewRouter(), Storage: storage.Options{Dir: dir, Shards: 3}, ServerName: "S", ServerID: "SID",
			MaxPayload: 1 << 20, Placement: p,
		})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(everyShard{})
	all := []uint32{2, 1, 0}
	if got := s.Placed("$G", "S", []string{"s"}); !slices.Equal(got, all) {
		t.Errorf("it would be in %v", got)
	}
	cfg := &server.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: server.FileStorage, Replicas: 1}
	if _, err := s.Cutover().Create(t.Context(), "$G", cfg, time.Now(), 1); err != nil {
		t.Fatal(err)
	}
	if got := s.Placed("$G", "S", nil); !slices.Equal(got, all) {
		t.Errorf("it is in %v", got)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = open(nil)
	defer func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if got := s.Placed("$G", "S", nil); !slices.Equal(got, all) {
		t.Errorf("it is in %v, with another map", got)
	}
	if got := s.Placed("$G", "OTHER", nil); len(got) != 1 {
		t.Errorf("another would be in %v", got)
	}
}
