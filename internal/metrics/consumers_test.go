package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestConsumerSeries(t *testing.T) {
	m := New()
	made := time.Now().Add(-time.Hour)
	m.Ready(Sources{Shards: 1, Durables: durables(
		Durable{
			Account: "A", Stream: "S", Consumer: "busy", Pending: 5, AckPending: 2, Waiting: 3, Created: made,
			Delivered: time.Now().Add(-time.Minute), Detail: func() Detail {
				return Detail{OldestPending: 90 * time.Second, OldestAckPending: 2 * time.Second, Redeliveries: 7}
			},
		},
		Durable{Account: "A", Stream: "S", Consumer: "new", Created: time.Now()},
	)})
	page := scrape(t, m)
	for series, want := range map[string]string{
		"pending": "5", "ack_pending": "2", "waiting_pulls": "3", "redeliveries_total": "7",
		"oldest_pending_seconds": "90", "oldest_ack_pending_seconds": "2",
	} {
		of := func(name string) string {
			return fmt.Sprintf(`ehdb_consumer_%s{account="A",consumer="%s",stream="S"}`, series, name)
		}
		if got := line(t, page, of("busy")); got != of("busy")+" "+want {
			t.Errorf("want %s, got %q", want, got)
		}
		if got := line(t, page, of("new")); got != of("new")+" 0" {
			t.Errorf("want 0, got %q", got)
		}
	}
	for series, want := range map[string]float64{"last_delivery_age_seconds": 60, "last_ack_age_seconds": 3600} {
		of := `ehdb_consumer_` + series + `{account="A",consumer="busy",stream="S"} `
		var got float64
		if _, err := fmt.Sscanf(line(t, page, strings.TrimSpace(of)), of+"%g", &got); err != nil || got < want || got > want+30 {
			t.Errorf("%s %g, want %g (%v)", series, got, want, err)
		}
	}
}

// TestConsumersAreBounded: what is beyond the bound is counted, and whoever has series keeps them.
func TestConsumersAreBounded(t *testing.T) {
	m := New()
	first := 10
	m.Ready(Sources{Shards: 1, Durables: func(fn func(Durable)) bool {
		for i := first; i < maxConsumers+13; i++ {
			fn(Durable{Stream: "S", Consumer: fmt.Sprintf("c%04d", i)})
		}
		return true
	}})
	check := func(without int) {
		t.Helper()
		page := scrape(t, m)
		if n := strings.Count(page, "\nehdb_consumer_pending{"); n != maxConsumers {
			t.Errorf("%d consumers have series", n)
		}
		if got, want := line(t, page, "ehdb_consumers_without_series"), fmt.Sprint("ehdb_consumers_without_series ", without); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
		line(t, page, `ehdb_consumer_pending{account="",consumer="c1009",stream="S"}`) // the last of the first thousand
	}
	check(3)
	first = 0 // ten more, before the others in order
	check(13)
	first = 11 // one that had series goes: another takes its place
	check(2)
}
