package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxConsumers bounds the durable consumers that have series of their own.
const maxConsumers = 1000

// consumerID names a durable consumer.
type consumerID struct{ account, stream, consumer string }

// roster says which durables have series of their own. One that has keeps them as long as it exists, so that no series
// comes and goes because of other consumers.
type roster struct {
	limit int
	shown map[consumerID]bool
}

func newRoster(limit int) *roster { return &roster{limit: limit, shown: map[consumerID]bool{}} }

// admit gives the durables that have series, and the number of those for which there was no room.
func (r *roster) admit(all []Durable) (with []Durable, dropped int) {
	kept := make(map[consumerID]bool, min(len(all), r.limit))
	for i := range all {
		if id := all[i].id(); r.shown[id] {
			kept[id] = true
		}
	}
	sent := make(map[consumerID]bool, len(kept))
	for i := range all {
		id := all[i].id()
		switch {
		case sent[id]: // made again under its name while the list was drawn up; two equal series would spoil the page
		case kept[id], len(kept) < r.limit:
			kept[id], sent[id] = true, true
			with = append(with, all[i])
		default:
			dropped++
		}
	}
	r.shown = kept
	return with, dropped
}

func (d *Durable) id() consumerID { return consumerID{d.Account, d.Stream, d.Consumer} }

// consumerDescs are the series of one durable.
type consumerDescs struct {
	pending, ackPending, waiting, redeliveries *prometheus.Desc
	oldestPending, oldestAckPending            *prometheus.Desc
	sinceDelivery, sinceAck                    *prometheus.Desc
}

func newConsumerDescs() consumerDescs {
	of := func(name, help string) *prometheus.Desc {
		return desc("ehdb_consumer_"+name, help, "account", "stream", "consumer")
	}
	return consumerDescs{
		pending:       of("pending", "Messages not delivered yet."),
		ackPending:    of("ack_pending", "Messages delivered and not acknowledged."),
		waiting:       of("waiting_pulls", "Pull requests that wait for messages."),
		redeliveries:  of("redeliveries_total", "Deliveries that were not a message's first."),
		oldestPending: of("oldest_pending_seconds", "Age of the oldest message not delivered; 0: none."),
		oldestAckPending: of("oldest_ack_pending_seconds",
			"Time since the oldest unacknowledged message was delivered; 0: none."),
		sinceDelivery: of("last_delivery_age_seconds", "Time since the last delivery, else since it was made."),
		sinceAck:      of("last_ack_age_seconds", "Time since the last ack, else since it was made."),
	}
}

// consumers sends what each durable has.
func (c *collector) consumers(ch chan<- prometheus.Metric, all []Durable) {
	c.mu.Lock()
	with, dropped := c.roster.admit(all)
	c.mu.Unlock()
	send(ch, []value{{
		"ehdb_consumers_without_series", "Durable consumers without series of their own: there are too many.",
		uint64(dropped), prometheus.GaugeValue, //nolint:gosec // a count
	}})
	now, names := time.Now(), &c.ofConsumer
	for i := range with {
		d := &with[i]
		one := func(name *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(name, kind, v, d.Account, d.Stream, d.Consumer)
		}
		one(names.pending, prometheus.GaugeValue, float64(d.Pending))
		one(names.ackPending, prometheus.GaugeValue, float64(d.AckPending))
		one(names.waiting, prometheus.GaugeValue, float64(d.Waiting))
		one(names.sinceDelivery, prometheus.GaugeValue, age(now, d.Delivered, d.Created))
		one(names.sinceAck, prometheus.GaugeValue, age(now, d.Acked, d.Created))
		if d.Elsewhere {
			continue
		}
		var more Detail
		if d.Detail != nil {
			more = d.Detail()
		}
		one(names.redeliveries, prometheus.CounterValue, float64(more.Redeliveries))
		one(names.oldestPending, prometheus.GaugeValue, more.OldestPending.Seconds())
		one(names.oldestAckPending, prometheus.GaugeValue, more.OldestAckPending.Seconds())
	}
}

// age is the time in seconds since last, or since made if there was none.
func age(now, last, made time.Time) float64 {
	if last.IsZero() {
		last = made
	}
	return max(now.Sub(last).Seconds(), 0)
}
