package metrics

import (
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/storage"
)

// maxSubjects bounds the series of ehdb_feed_subject_lag.
const maxSubjects = 10_000

// collector asks the sources at each scrape.
type collector struct {
	s Sources

	mu       sync.Mutex
	subjects map[string]bool // shown so far
	roster   *roster

	ofConsumer consumerDescs
}

func newCollector(s Sources) *collector {
	c := &collector{
		s: s, subjects: map[string]bool{}, roster: newRoster(maxConsumers), ofConsumer: newConsumerDescs(),
	}
	for _, f := range s.Subjects {
		c.subjects[f] = true
	}
	return c
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector. Sending nothing makes the collector an unchecked one: its subjects come and
// go.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.gateway(ch)
	if c.s.SSE != nil {
		sse(ch, c.s.SSE())
	}
	elsewhere := c.s.Upstream != nil
	if elsewhere {
		c.upstream(ch)
	}
	var j JetStream
	shards := 0
	if c.s.JetStream != nil || !elsewhere {
		if c.s.JetStream != nil {
			j = c.s.JetStream()
		}
		shards = max(c.s.Shards, len(j.Storage.Shards))
		jetStream(ch, &j)
		storageStats(ch, &j)
		c.shards(ch, &j, shards)
	}
	if c.s.Durables == nil && elsewhere {
		return
	}
	var all []Durable
	known := true
	if c.s.Durables != nil {
		known = c.s.Durables(func(d Durable) { all = append(all, d) })
	}
	c.feed(ch, all, shards, known)
	c.consumers(ch, all)
}

// value is one series of one family.
type value struct {
	name, help string
	v          uint64
	kind       prometheus.ValueType
}

func send(ch chan<- prometheus.Metric, values []value) {
	for _, v := range values {
		ch <- prometheus.MustNewConstMetric(desc(v.name, v.help), v.kind, float64(v.v))
	}
}

func (c *collector) gateway(ch chan<- prometheus.Metric) {
	var g Gateway
	if c.s.Gateway != nil {
		g = c.s.Gateway()
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	send(ch, []value{
		{"ehdb_gateway_connections", "Open client connections.", g.Connections, gauge},
		{"ehdb_gateway_subscriptions", "Subscriptions of clients.", g.Subscriptions, gauge},
		{"ehdb_gateway_connections_total", "Client connections accepted.", g.TotalConnections, counter},
		{"ehdb_gateway_in_msgs_total", "Messages received from clients.", g.InMsgs, counter},
		{"ehdb_gateway_out_msgs_total", "Messages sent to clients.", g.OutMsgs, counter},
		{"ehdb_gateway_in_bytes_total", "Bytes of messages received from clients.", g.InBytes, counter},
		{"ehdb_gateway_out_bytes_total", "Bytes of messages sent to clients.", g.OutBytes, counter},
		{"ehdb_gateway_stale_connections_total", "Connections closed because they did not answer.", g.Stale, counter},
		{"ehdb_gateway_stalls_total", "Pauses of clients that publish faster than is taken.", g.Stalled, counter},
	})
	slow := desc("ehdb_gateway_slow_consumers_total", "Connections closed because they read too slowly.", "reason")
	ch <- prometheus.MustNewConstMetric(slow, counter, float64(g.SlowPending), "pending_bytes")
	ch <- prometheus.MustNewConstMetric(slow, counter, float64(g.SlowDeadline), "write_deadline")
	ended := desc("ehdb_gateway_disconnects_total", "Client connections that ended, by connz's reason.", "reason")
	for reason, n := range g.Disconnects {
		ch <- prometheus.MustNewConstMetric(ended, counter, float64(n), reason)
	}
	talkers(ch, &g.Talkers)
}

// sse sends what the feeds count.
func sse(ch chan<- prometheus.Metric, f SSE) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	send(ch, []value{
		{"ehdb_sse_connections", "Open feeds of server-sent events.", f.Connections, gauge},
		{"ehdb_sse_connections_total", "Feeds opened.", f.Opened, counter},
		{"ehdb_sse_resumed_total", "Feeds opened that went on behind an event.", f.Resumed, counter},
		{"ehdb_sse_events_total", "Messages sent by feeds.", f.Events, counter},
		{"ehdb_sse_bytes_total", "Bytes written by feeds.", f.Bytes, counter},
		{"ehdb_sse_gaps_total", "Events that told of messages which left the stream unsent.", f.Gaps, counter},
		{"ehdb_sse_slow_readers_total", "Feeds ended because the client did not read.", f.Slow, counter},
	})
	refused := desc("ehdb_sse_refused_total", "Requests for a feed that were refused.", "reason")
	for reason, n := range f.Refused {
		ch <- prometheus.MustNewConstMetric(refused, counter, float64(n), reason)
	}
}

// jetStream sends what the streams count.
func jetStream(ch chan<- prometheus.Metric, j *JetStream) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	send(ch, []value{
		{"ehdb_jetstream_streams", "Streams.", j.Streams, gauge},
		{"ehdb_jetstream_consumers", "Consumers.", j.Consumers, gauge},
		{"ehdb_jetstream_messages", "Messages in streams.", j.Messages, gauge},
		{"ehdb_jetstream_bytes", "Bytes of messages in streams.", j.Bytes, gauge},
		{"ehdb_jetstream_api_requests_total", "Requests to the JetStream API.", j.APIRequests, counter},
		{"ehdb_jetstream_api_errors_total", "JetStream API requests answered with an error.", j.APIErrors, counter},
		{
			"ehdb_consumer_stalled",
			"Consumers with messages and somebody who waits for them that deliver nothing. Must stay 0.",
			j.Stalled, gauge,
		},
		{
			"ehdb_consumer_miscounted_total",
			"Times a consumer had lost count of its messages, by a check that goes round. Must stay 0.",
			j.Miscounted, counter,
		},
		{"ehdb_consumer_audits_total", "Consumers whose counts were checked.", j.Audits, counter},
		{
			"ehdb_consumer_key_blocked",
			"Consumers with ehdb.key_shared that passed over as many messages of keys in hand as they may.",
			j.KeyBlocked, gauge,
		},
	})
	used := desc("ehdb_jetstream_stored_bytes", "Bytes that count against the limits of the server.", "storage")
	ch <- prometheus.MustNewConstMetric(used, gauge, float64(j.FileBytes), "file")
	ch <- prometheus.MustNewConstMetric(used, gauge, float64(j.MemoryBytes), "memory")
	limit := desc("ehdb_jetstream_limit_bytes", "Limits of the server on what streams store; 0: none.", "storage")
	ch <- prometheus.MustNewConstMetric(limit, gauge, float64(max(j.FileLimit, 0)), "file")
	ch <- prometheus.MustNewConstMetric(limit, gauge, float64(max(j.MemoryLimit, 0)), "memory")

	refused := desc("ehdb_jetstream_publish_refusals_total", "Publishes refused, by JetStream's err_code.", "err_code")
	codes := slices.Clone(refusals)
	for code := range j.Refusals {
		if !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	for _, code := range codes {
		ch <- prometheus.MustNewConstMetric(refused, counter, float64(j.Refusals[code]), strconv.Itoa(code))
	}
}

func storageStats(ch chan<- prometheus.Metric, j *JetStream) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	s := &j.Storage
	up := uint64(1)
	if j.StorageErr != nil {
		up = 0
	}
	send(ch, []value{
		{"ehdb_l0_appends", "Records appended.", s.Appends, counter},
		{
			"ehdb_l0_out_of_order_appends", "Records offered below the head of their log. Must stay 0.",
			s.OutOfOrderAppends, counter,
		},
		{"ehdb_storage_up", "1 while the data directory takes and acknowledges records, else 0.", up, gauge},
		{"ehdb_storage_commits_total", "Group commits.", s.Commits, counter},
		{"ehdb_storage_syncs_total", "Syncs of the write-ahead log.", s.Syncs, counter},
		{"ehdb_storage_written_bytes_total", "Bytes written to the write-ahead log.", s.BytesWritten, counter},
		{"ehdb_storage_tail_cuts_total", "Torn tails cut off when the directory was opened.", s.TailCuts, counter},
		{"ehdb_storage_disk_bytes", "Bytes on disk.", uint64(max(s.DiskBytes, 0)), gauge},
		{"ehdb_storage_free_bytes", "Free bytes of the file system that the data directory is on.", j.DiskFree, gauge},
		{"ehdb_storage_size_bytes", "Size of the file system that the data directory is on.", j.DiskSize, gauge},
		{"ehdb_storage_parts", "Sealed parts on disk.", uint64(max(s.Parts, 0)), gauge},
		{
			"ehdb_storage_plain_parts", "Sealed parts that are still to be encrypted, since the data directory is.",
			uint64(max(s.PlainParts, 0)), gauge,
		},
		{"ehdb_storage_seals_total", "Times that the write-ahead log was sealed.", s.Seals, counter},
		{
			"ehdb_storage_unsealed_records", "Records in the write-ahead log that are not in parts yet.",
			uint64(max(s.Unsealed, 0)), gauge,
		},
		{
			"ehdb_storage_held_total", "Times that producers were held back because sealing did not keep up.",
			s.Held, counter,
		},
		{"ehdb_storage_merges_total", "Times that parts were merged.", s.Merges, counter},
		{"ehdb_storage_recovered_records", "Records replayed by the last start.", s.RecoverRecords, gauge},
		{"ehdb_storage_queue_limit_bytes", "Bound of one shard's queue.", uint64(max(j.QueueLimit, 0)), gauge},
	})
	ch <- prometheus.MustNewConstMetric(desc("ehdb_storage_recovery_seconds", "Time the last start took to replay."),
		gauge, s.RecoverSeconds)
}

func (c *collector) shards(ch chan<- prometheus.Metric, j *JetStream, shards int) {
	committed := desc("ehdb_feed_shard_committed", "Durable position of the shard, global and monotonic.", "shard")
	queued := desc("ehdb_storage_queue_bytes", "Bytes waiting to be committed.", "shard")
	from := desc("ehdb_feed_shard_resume_from", "Position of the shard that the last start read on from: what is "+
		"before it was sealed (persisted), or there was nothing sealed (fallback_beginning).", "shard", "origin")
	tip := desc("ehdb_feed_shard_resume_tip", "Position of the shard that the last start read up to.", "shard")
	replayed := desc("ehdb_feed_shard_resume_replay_records", "Records of the shard that the last start read.", "shard")
	for i := range shards {
		var s storage.ShardStats
		if i < len(j.Storage.Shards) {
			s = j.Storage.Shards[i]
		}
		origin := "fallback_beginning"
		if s.ResumePersisted {
			origin = "persisted"
		}
		const gauge = prometheus.GaugeValue
		ch <- prometheus.MustNewConstMetric(committed, gauge, float64(s.Committed), shardLabel(i))
		ch <- prometheus.MustNewConstMetric(queued, gauge, float64(s.QueuedBytes), shardLabel(i))
		ch <- prometheus.MustNewConstMetric(from, gauge, float64(s.ResumeFrom), shardLabel(i), origin)
		ch <- prometheus.MustNewConstMetric(tip, gauge, float64(s.ResumeTip), shardLabel(i))
		ch <- prometheus.MustNewConstMetric(replayed, gauge, float64(s.ReplayRecords), shardLabel(i))
	}
}

// lags sums up the durables.
type lags struct {
	total, inflight uint64
	shard, held     []uint64
	subject         map[string]uint64
}

// feed sends the lag. Without all durables known there are neither sums nor subjects at 0: what is not known must not
// read like nothing to do.
//
//nolint:revive // known is what the source says
func (c *collector) feed(ch chan<- prometheus.Metric, all []Durable, shards int, known bool) {
	l := &lags{shard: make([]uint64, shards), held: make([]uint64, shards), subject: map[string]uint64{}}
	for i := range all {
		l.add(&all[i], c.s.Subjects)
	}
	const gauge = prometheus.GaugeValue
	if known {
		send(ch, []value{
			{"ehdb_feed_total_lag", "What all durable consumers have still to do.", l.total, gauge},
			{"ehdb_feed_total_inflight", "Messages delivered and not acknowledged.", l.inflight, gauge},
		})
	}
	lag := desc("ehdb_feed_shard_lag", "What the durable consumer that is furthest behind has still to do.", "shard")
	held := desc("ehdb_feed_shard_inflight", "Messages of the shard delivered and not acknowledged.", "shard")
	for i := range shards {
		ch <- prometheus.MustNewConstMetric(lag, gauge, float64(l.shard[i]), shardLabel(i))
		ch <- prometheus.MustNewConstMetric(held, gauge, float64(l.held[i]), shardLabel(i))
	}
	subjects, dropped := c.remember(l.subject)
	if !known {
		subjects = slices.DeleteFunc(subjects, func(f string) bool { _, seen := l.subject[f]; return !seen })
	}
	send(ch, []value{{"ehdb_feed_subjects_dropped", "Filters without a series: there are too many.", dropped, gauge}})
	subject := desc("ehdb_feed_subject_lag", "What the durable consumers of a filter have still to do.", "subject")
	for _, f := range subjects {
		ch <- prometheus.MustNewConstMetric(subject, gauge, float64(l.subject[f]), f)
	}
}

// remember adds what was seen to the subjects that are shown, and returns them all.
func (c *collector) remember(seen map[string]uint64) (subjects []string, dropped uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range seen {
		switch {
		case c.subjects[f]:
		case len(c.subjects) < maxSubjects:
			c.subjects[f] = true
		default:
			dropped++
		}
	}
	for f := range c.subjects {
		subjects = append(subjects, f)
	}
	return subjects, dropped
}

// add takes one durable; configured are the subjects that have a series whoever reads them.
func (l *lags) add(d *Durable, configured []string) {
	lag := d.Pending + d.AckPending
	l.total += lag
	l.inflight += d.AckPending
	for _, i := range d.Shards {
		if i < len(l.shard) {
			l.shard[i] = max(l.shard[i], lag)
			l.held[i] += d.AckPending
		}
	}
	for _, f := range d.Filters {
		l.subject[f] = max(l.subject[f], lag)
	}
	for _, s := range configured {
		if slices.Contains(d.Filters, s) || d.Count == nil || !slices.ContainsFunc(d.Filters, func(f string) bool {
			return server.SubjectsCollide(f, s)
		}) {
			continue
		}
		l.subject[s] = max(l.subject[s], min(lag, d.Count(s)))
	}
}
