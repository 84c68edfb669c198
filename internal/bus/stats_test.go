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

func TestWatchListeners(t *testing.T) {
	r := bus.NewRouter()
	a, _ := client(t, r)
	b, _ := client(t, r)
	p, _ := client(t, r)
	told := ""
	cancel := r.WatchListeners("A", "x.y", "", func(listens bool) {
		told += map[bool]string{true: "+", false: "-"}[listens]
		r.Listens("A", "x.y", "") // no lock is held
	})
	ofGroup := r.WatchListeners("A", "x.y", "g", func(listens bool) {
		told += map[bool]string{true: "g+", false: "g-"}[listens]
	})
	step := func(what, want string) {
		t.Helper()
		if told != want {
			t.Errorf("after %s: told %q, want %q", what, told, want)
		}
		told = ""
	}
	subscribe(t, a, "0", "x.*", "")
	subscribe(t, a, "9", ">", "")
	subscribe(t, a, "8", "x.z", "")
	subscribe(t, a, "7", "x.y", "other")
	step("others", "")
	want(t, "with others only", fmt.Sprint(r.Listens("A", "x.y", ""), r.Listens("A", "x.y", "g")), "false false")
	subscribe(t, a, "1", "x.y", "")
	step("the first", "+")
	subscribe(t, b, "2", "x.y", "g")
	step("a member of the group", "g+")
	want(t, "with both", fmt.Sprint(r.Listens("A", "x.y", ""), r.Listens("A", "x.y", "g")), "true true")
	subscribe(t, b, "3", "x.y", "")
	a.Unsubscribe("1", 0)
	step("another came and the first went", "")
	b.Unsubscribe("3", 1)
	publish(p, "x.y")
	step("the last message of the last", "-")
	subscribe(t, b, "4", "x.y", "")
	step("one more", "+")
	b.Unsubscribe("2", 0)
	step("the member went", "g-")
	b.Close()
	step("Close", "-")
	cancel()
	cancel()
	ofGroup()
	subscribe(t, a, "3", "x.y", "")
	step("cancel", "")

	told = ""
	defer r.WatchListeners("A", "x.y", "", func(listens bool) { told += fmt.Sprint(listens) })()
	a.Close()
	step("the end of what was there before the watch", "false")
	defer r.WatchListeners("A", "x.*", "", func(bool) { told += "!" })()
	subscribe(t, p, "1", "x.*", "")
	step("a watch of what is no literal", "")
}
