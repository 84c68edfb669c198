package bus_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestStats(t *testing.T) {
	r := bus.NewRouter()
	want(t, "of an unknown account", r.AccountStats("none"), bus.Stats{})
	want(t, "interest there", r.HasInterest("none", "a"), false)
	want(t, "subscriptions there", r.NumSubscriptions("none"), 0)
	want(t, "no hit rate", (&bus.Stats{}).CacheHitRate(), 0.0)

	p, _ := client(t, r)
	a, _ := open(t, r, bus.KindService, bus.Identity{Account: "A", User: "u", ID: 7})
	b, _ := open(t, r, bus.KindClient, bus.Identity{})
	subscribe(t, a, "1", "a.*", "")
	subscribe(t, a, "2", "a.b", "g")
	subscribe(t, b, "3", "a.b", "")
	b.Unsubscribe("3", 0)
	for range 10 {
		publish(p, "a.b")
	}
	p.Flush()
	s := r.AccountStats("A")
	want(t, "account", s, bus.Stats{
		Subscriptions: 2, Cached: 1, Inserts: 2, Matches: 10, CacheHits: s.CacheHits, Deliveries: 20, MaxFanout: 2,
	})
	want(t, "hits", s.CacheHits >= 8, true)
	want(t, "fan-out", s.AvgFanout(), 2.0)
	all := r.Stats()
	want(t, "all inserts", all.Inserts, int64(3))
	want(t, "all removes", all.Removes, int64(1))
	want(t, "accounts", slices.Equal(r.Accounts(), []string{"$G", "A"}), true)

	var seen []string
	r.EachSubscription("A", func(s *bus.Subscription, kind bus.Kind, id bus.Identity) bool {
		seen = append(seen, fmt.Sprint(string(s.SID), s.Filter, s.Queue, kind, id.User, id.ID, s.Delivered()))
		return true
	})
	slices.Sort(seen)
	want(t, "each", fmt.Sprint(seen), "[1a.*2u7 10 2a.bg2u7 10]")
	n := 0
	r.EachSubscription("A", func(*bus.Subscription, bus.Kind, bus.Identity) bool { n++; return false })
	want(t, "stopped", n, 1)
	want(t, "matching", len(r.SubscriptionsMatching("A", "a.c")), 1)
}

func TestWatchInterest(t *testing.T) {
	r := bus.NewRouter()
	a, _ := client(t, r)
	b, _ := client(t, r)
	p, _ := client(t, r)
	told := ""
	cancel := r.WatchInterest("A", "x.y", "", func(interest bool) {
		told += map[bool]string{true: "+", false: "-"}[interest]
		r.HasInterest("A", "x.y") // no lock is held
	})
	step := func(what, want string) {
		t.Helper()
		if told != want {
			t.Errorf("after %s: told %q, want %q", what, told, want)
		}
		told = ""
	}
	subscribe(t, a, "1", "x.*", "")
	step("the first, by wildcard", "+")
	subscribe(t, b, "2", "x.y", "g")
	a.Unsubscribe("1", 0)
	step("another came and the first went", "")
	b.Unsubscribe("2", 1)
	publish(p, "x.y")
	step("the last message of the last", "-")
	subscribe(t, a, "1", "x.z", "")
	subscribe(t, a, "2", ">", "")
	step("one of all subjects", "+")
	a.Close()
	step("Close", "-")
	cancel()
	cancel()
	subscribe(t, b, "3", "x.y", "")
	step("cancel", "")

	told = ""
	defer r.WatchInterest("A", "x.y", "", func(interest bool) { told += fmt.Sprint(interest) })()
	b.Close()
	step("the end of what was there before the watch", "false")
	defer r.WatchInterest("A", "x.*", "", func(bool) { told += "!" })()
	subscribe(t, p, "1", "x.*", "")
	step("a watch of what is no literal", "true")
}
