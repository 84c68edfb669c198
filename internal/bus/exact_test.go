package bus_test

import (
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
)

func TestHasExactInterest(t *testing.T) {
	r := bus.NewRouter()
	if r.HasExactInterest("A", "a.b") {
		t.Error("in an account that nobody was ever in")
	}
	s, err := r.Open(bus.KindClient, bus.Identity{Account: "A"}, new(bustest.Sink))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, step := range []struct {
		filter string
		want   bool
	}{{"a.*", false}, {"a.>", false}, {"a.c", false}, {"a.b", true}} {
		if _, err := s.Subscribe(step.filter, step.filter, ""); err != nil {
			t.Fatal(err)
		}
		if got := r.HasExactInterest("A", "a.b"); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	s.Unsubscribe("a.b", 0)
	if r.HasExactInterest("A", "a.b") || !r.HasInterest("A", "a.b") {
		t.Error("after the end of the subscription")
	}
}
