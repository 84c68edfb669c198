package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// line returns the one line that starts with series, without its line feed.
func line(t *testing.T, page, series string) string {
	t.Helper()
	var found []string
	for l := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(l, series+" ") {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines of %s", len(found), series)
	}
	return found[0]
}

func durables(list ...Durable) func(func(Durable)) bool {
	return func(fn func(Durable)) bool {
		for i, d := range list {
			d.Consumer = cmp.Or(d.Consumer, fmt.Sprint("c", i))
			fn(d)
		}
		return true
	}
}

func TestNothingBeforeReady(t *testing.T) {
	m := New()
	m.Synced(1, 1, 1) // recovery may commit
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d before there is anything to show", w.Code)
	}
}

// Every family is there, at 0, before anything happened: also with JetStream off.
func TestPinnedAtZero(t *testing.T) {
	m := New()
	m.Ready(Sources{
		Shards: 2, Subjects: []string{"commands.shared.shard.0"},
		SSE: func() SSE { return SSE{Refused: map[string]uint64{"login": 0}} },
	})
	page := scrape(t, m)
	want := []string{
		"ehdb_feed_total_lag", "ehdb_feed_total_inflight", "ehdb_feed_subjects_dropped",
		`ehdb_feed_subject_lag{subject="commands.shared.shard.0"}`,
		"ehdb_l0_appends", "ehdb_l0_out_of_order_appends",
		"ehdb_storage_commits_total", "ehdb_storage_syncs_total", "ehdb_storage_written_bytes_total",
		"ehdb_storage_tail_cuts_total", "ehdb_storage_disk_bytes", "ehdb_storage_recovered_records",
		"ehdb_storage_recovery_seconds", "ehdb_storage_queue_limit_bytes", "ehdb_storage_free_bytes", "ehdb_storage_size_bytes",
		`ehdb_jetstream_limit_bytes{storage="file"}`, `ehdb_jetstream_limit_bytes{storage="memory"}`,
		"ehdb_consumers_without_series", "ehdb_stream_publish_ack_seconds_count",
		"ehdb_storage_sync_seconds_count", "ehdb_storage_commit_records_count",
		"ehdb_gateway_connections", "ehdb_gateway_connections_total", "ehdb_gateway_subscriptions",
		"ehdb_gateway_in_msgs_total", "ehdb_gateway_out_msgs_total", "ehdb_gateway_in_bytes_total",
		"ehdb_gateway_out_bytes_total", "ehdb_gateway_stale_connections_total", "ehdb_gateway_stalls_total",
		`ehdb_gateway_slow_consumers_total{reason="pending_bytes"}`,
		`ehdb_gateway_slow_consumers_total{reason="write_deadline"}`,
		"ehdb_jetstream_streams", "ehdb_jetstream_consumers", "ehdb_jetstream_messages", "ehdb_jetstream_bytes",
		`ehdb_jetstream_stored_bytes{storage="file"}`, `ehdb_jetstream_stored_bytes{storage="memory"}`,
		"ehdb_jetstream_api_requests_total", "ehdb_jetstream_api_errors_total", "ehdb_consumer_stalled",
		"ehdb_consumer_miscounted_total", "ehdb_consumer_audits_total",
		"ehdb_consumer_key_blocked", "ehdb_sse_connections", "ehdb_sse_connections_total", "ehdb_sse_resumed_total",
		"ehdb_sse_events_total", "ehdb_sse_bytes_total", "ehdb_sse_gaps_total", "ehdb_sse_slow_readers_total",
		`ehdb_sse_refused_total{reason="login"}`,
		`ehdb_jetstream_publish_refusals_total{err_code="10071"}`,
	}
	for _, shard := range []string{"0", "1"} {
		for _, n := range []string{"feed_shard_lag", "feed_shard_inflight", "feed_shard_committed", "storage_queue_bytes", "feed_shard_resume_tip", "feed_shard_resume_replay_records"} {
			want = append(want, fmt.Sprintf(`ehdb_%s{shard="%s"}`, n, shard))
		}
	}
	want = append(want, `ehdb_feed_shard_resume_from{origin="fallback_beginning",shard="0"}`,
		"ehdb_storage_parts", "ehdb_storage_seals_total", "ehdb_storage_unsealed_records", "ehdb_storage_held_total", "ehdb_storage_merges_total")
	for _, s := range want {
		if got := line(t, page, s); got != s+" 0" {
			t.Errorf("want %s 0, got %q", s, got)
		}
	}
	line(t, page, "ehdb_storage_up")
	if !regexp.MustCompile(`(?m)^ehdb_build_info\{goversion="go[^"]+",mode="",version=""\} 1$`).MatchString(page) {
		t.Error("no ehdb_build_info")
	}
}

// The names of the feed and the log are settled by those who read them; all others follow Prometheus's rules.
func TestNames(t *testing.T) {
	m := New()
	m.Ready(Sources{Shards: 1})
	settled := []string{"ehdb_l0_appends", "ehdb_l0_out_of_order_appends"}
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ehdb_") && !slices.Contains(settled, p.Metric) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestLag(t *testing.T) {
	list := []Durable{
		{Shards: []int{0}, Filters: []string{"a.*"}, Pending: 5, AckPending: 2},
		{Shards: []int{0}, Filters: []string{"a.*", "b"}, Pending: 1},
		{Shards: []int{1, 0}, Filters: []string{"c"}, Pending: 20, AckPending: 10},
		{Shards: []int{7}, Filters: []string{"a.>"}, Pending: 3, Count: func(s string) uint64 {
			if s != "a.b.c" {
				t.Errorf("asked for %q", s)
			}
			return 2
		}},
	}
	m := New()
	m.Ready(Sources{Shards: 2, Subjects: []string{"a.b.c", "quiet"}, Durables: durables(list...)})
	page := scrape(t, m)
	for series, want := range map[string]string{
		"ehdb_feed_total_lag":                    "41",
		"ehdb_feed_total_inflight":               "12",
		`ehdb_feed_shard_lag{shard="0"}`:         "30",
		`ehdb_feed_shard_lag{shard="1"}`:         "30",
		`ehdb_feed_shard_inflight{shard="0"}`:    "12",
		`ehdb_feed_subject_lag{subject="a.*"}`:   "7",
		`ehdb_feed_subject_lag{subject="b"}`:     "1",
		`ehdb_feed_subject_lag{subject="c"}`:     "30",
		`ehdb_feed_subject_lag{subject="a.>"}`:   "3",
		`ehdb_feed_subject_lag{subject="a.b.c"}`: "2",
		`ehdb_feed_subject_lag{subject="quiet"}`: "0",
	} {
		if got := line(t, page, series); got != series+" "+want {
			t.Errorf("want %s %s, got %q", series, want, got)
		}
	}
}

// A scaler compares the line's form byte by byte; a durable that goes leaves its line, at 0.
func TestSubjectLineIsStable(t *testing.T) {
	pending := uint64(7)
	gone := false
	m := New()
	m.Ready(Sources{Shards: 1, Durables: func(fn func(Durable)) bool {
		if !gone {
			fn(Durable{Filters: []string{"commands.shared.shard.0"}, Pending: pending})
		}
		return true
	}})
	const form = `ehdb_feed_subject_lag{subject="commands.shared.shard.0"}`
	for _, want := range []string{" 7", " 8", " 0"} {
		if got := line(t, scrape(t, m), form); got != form+want {
			t.Fatalf("want %q, got %q", form+want, got)
		}
		pending++
		gone = want == " 8"
	}
}

// A scrape that hangs does not let others pile up behind it.
func TestScrapesAreBounded(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, maxScrapes)
	m := New()
	m.Ready(Sources{Gateway: func() Gateway {
		entered <- struct{}{}
		<-release
		return Gateway{}
	}})
	var hanging sync.WaitGroup
	for range maxScrapes {
		hanging.Go(func() {
			m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-entered
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	close(release)
	hanging.Wait()
}

func TestSubjectsAreBounded(t *testing.T) {
	m := New()
	m.Ready(Sources{Shards: 1, Durables: func(fn func(Durable)) bool {
		for i := range maxSubjects + 3 {
			fn(Durable{Consumer: fmt.Sprint(i), Filters: []string{fmt.Sprint("s.", i)}})
		}
		return true
	}})
	page := scrape(t, m)
	if n := strings.Count(page, "\nehdb_feed_subject_lag{"); n != maxSubjects {
		t.Errorf("%d series", n)
	}
	if got := line(t, page, "ehdb_feed_subjects_dropped"); got != "ehdb_feed_subjects_dropped 3" {
		t.Errorf("got %q", got)
	}
}

func TestStorage(t *testing.T) {
	m := New()
	m.Synced(3, 100, 0.002)
	m.Ready(Sources{JetStream: func() JetStream {
		return JetStream{
			StorageErr: errors.New("disk on fire"), QueueLimit: 64,
			Refusals: map[int]uint64{10071: 2, 10999: 1},
			Storage: storage.Stats{
				Appends: 9, OutOfOrderAppends: 1, Commits: 4,
				Shards: []storage.ShardStats{{Head: 9, Committed: 8, QueuedBytes: 7}, {}},
			},
		}
	}})
	page := scrape(t, m)
	for series, want := range map[string]string{
		"ehdb_storage_up":                                         "0",
		"ehdb_l0_appends":                                         "9",
		"ehdb_l0_out_of_order_appends":                            "1",
		`ehdb_feed_shard_committed{shard="0"}`:                    "8",
		`ehdb_feed_shard_committed{shard="1"}`:                    "0",
		`ehdb_storage_queue_bytes{shard="0"}`:                     "7",
		"ehdb_storage_queue_limit_bytes":                          "64",
		"ehdb_storage_sync_seconds_count":                         "1",
		"ehdb_storage_commit_records_sum":                         "3",
		`ehdb_jetstream_publish_refusals_total{err_code="10071"}`: "2",
		`ehdb_jetstream_publish_refusals_total{err_code="10999"}`: "1",
	} {
		if got := line(t, page, series); got != series+" "+want {
			t.Errorf("want %s %s, got %q", series, want, got)
		}
	}
}

// A server that passes its clients on shows what it keeps itself, and of consumers what is known. What is not must not
// read like 0.
func TestStreamsElsewhere(t *testing.T) {
	all, upstream := true, func() Upstream { return Upstream{} }
	lag := func(fn func(Durable)) bool {
		fn(Durable{Stream: "S", Consumer: "c", Filters: []string{"here"}, Pending: 3})
		if all {
			fn(Durable{Stream: "T", Consumer: "c", Filters: []string{"there"}, Pending: 4, Elsewhere: true})
		}
		return all
	}
	m, without := New(), New()
	m.Ready(Sources{
		Shards: 1, Subjects: []string{"quiet"}, Upstream: upstream, Durables: lag,
		JetStream: func() JetStream { return JetStream{} }, SSE: func() SSE { return SSE{} },
	})
	without.Ready(Sources{Shards: 1, Upstream: upstream})
	has := func(m *Metrics, wanted bool, list ...string) {
		t.Helper()
		page := scrape(t, m)
		for _, s := range list {
			if strings.Contains(page, "\n"+s) != wanted {
				t.Errorf("%s: there is %v", s, !wanted)
			}
		}
	}
	has(m, true, "ehdb_upstream_connections 0", "ehdb_storage_up 1", "ehdb_l0_out_of_order_appends 0",
		"ehdb_storage_sync_seconds_count 0", "ehdb_sse_connections 0", `ehdb_feed_shard_committed{shard="0"} 0`,
		"ehdb_feed_total_lag 7", `ehdb_feed_subject_lag{subject="there"} 4`, `ehdb_feed_subject_lag{subject="quiet"} 0`)
	has(m, true, `ehdb_consumer_oldest_pending_seconds{account="",consumer="c",stream="S"}`)
	has(m, false, `ehdb_consumer_oldest_pending_seconds{account="",consumer="c",stream="T"}`)
	all = false // the servers do not say any more
	has(m, true, `ehdb_feed_subject_lag{subject="here"} 3`, `ehdb_feed_shard_lag{shard="0"} 0`)
	has(m, false, "ehdb_feed_total_lag", "ehdb_feed_total_inflight", `ehdb_feed_subject_lag{subject="there"}`,
		`ehdb_feed_subject_lag{subject="quiet"}`)
	has(without, false, "ehdb_storage_up", "ehdb_feed_", "ehdb_consumer_", "ehdb_jetstream_", "ehdb_l0_",
		"ehdb_storage_sync_seconds")
}
