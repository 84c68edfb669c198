package pilot

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A consumer stands still if it has work and takers and delivers nothing; one that may wait for others does not.
func TestStalled(t *testing.T) {
	now := time.Unix(1000, 0)
	before, lately := now.Add(-time.Minute), now.Add(-time.Second)
	change := func(f func(*server.ConsumerInfo)) *server.ConsumerInfo {
		i := &server.ConsumerInfo{
			Name: "C", Config: &server.ConsumerConfig{MaxAckPending: 10}, NumPending: 3, NumWaiting: 1, NumAckPending: 9,
			Delivered: server.SequenceInfo{Last: &before},
		}
		f(i)
		return i
	}
	for name, c := range map[string]struct {
		info *server.ConsumerInfo
		want bool
	}{
		"pulled":           {change(func(*server.ConsumerInfo) {}), true},
		"pushed":           {change(func(i *server.ConsumerInfo) { i.NumWaiting, i.PushBound = 0, true }), true},
		"never delivered":  {change(func(i *server.ConsumerInfo) { i.Delivered.Last = nil }), true},
		"delivers":         {change(func(i *server.ConsumerInfo) { i.Delivered.Last = &lately }), false},
		"no work":          {change(func(i *server.ConsumerInfo) { i.NumPending = 0 }), false},
		"no takers":        {change(func(i *server.ConsumerInfo) { i.NumWaiting = 0 }), false},
		"paused":           {change(func(i *server.ConsumerInfo) { i.Paused = true }), false},
		"all outstanding":  {change(func(i *server.ConsumerInfo) { i.NumAckPending = 10 }), false},
		"slow client":      {change(func(i *server.ConsumerInfo) { i.Config.FlowControl = true }), false},
		"rate limit":       {change(func(i *server.ConsumerInfo) { i.Config.RateLimit = 1 }), false},
		"pinned elsewhere": {change(func(i *server.ConsumerInfo) { i.Config.PriorityPolicy = server.PriorityPinnedClient }), false},
		"keys are busy":    {change(func(i *server.ConsumerInfo) { i.Config.Metadata = map[string]string{"ehdb.key_shared": "1"} }), false},
	} {
		list := stalled([]*server.ConsumerInfo{c.info}, before, now)
		if (len(list) > 0) != c.want || c.want && (!strings.Contains(list[0].text, "consumer C has 3 messages") || list[0].at != now) {
			t.Errorf("%s: %+v", name, list)
		}
	}
	if list := stalled([]*server.ConsumerInfo{change(func(*server.ConsumerInfo) {})}, lately, now); len(list) > 0 {
		t.Errorf("a second behind the flip: %+v", list)
	}
}
