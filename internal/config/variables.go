package config

import (
	"fmt"
	"slices"
)

// Variable is one of the environment that the system before is set up with and that means nothing here, and what does.
type Variable struct {
	Name, Instead string
}

// Variables are those, by name. Whoever moves a deployment finds them in the log rather than wonder why they do
// nothing.
func Variables() []Variable { return slices.Clone(variables) }

const (
	oneProcess = "the gateway is the writer: clients connect to its client port, and ehdb.shards says how many " +
		"shards it has"
	inTheLog = "positions of consumers are records of the log: they are durable, and none falls back"
	bounded  = "the copy's queue has a bound of its own, waits, and then writes inline; nothing is dropped"
	stopping = "a stop answers whoever waits and seals; lame_duck_duration and terminationGracePeriodSeconds bound it"
)

var variables = []Variable{
	{"EHDB_FEED_BATCH_LIMIT", "deliveries go by what the consumer asks for: batch, max_bytes, max_ack_pending"},
	{"EHDB_FEED_MAX_FRAME_BYTES", "max_payload bounds a message, on both sides of the protocol"},
	{"EHDB_READ_HARD_CEILING_MS", "a request has its own deadline, such as expires of a pull"},
	{"NOETL_COMMAND_BUS_ACK_WAIT_SECS", "each consumer has its ack_wait"},
	{"NOETL_COMMAND_BUS_CLAIM_ADDR", oneProcess},
	{"NOETL_COMMAND_BUS_CLAIM_BIND", "host and port are where clients connect, for all they do"},
	{"NOETL_COMMAND_BUS_CURSOR_FALLBACK", inTheLog},
	{"NOETL_COMMAND_BUS_CURSOR_PERSIST_MS", inTheLog},
	{"NOETL_COMMAND_BUS_HOST", oneProcess},
	{"NOETL_COMMAND_BUS_INGEST_BIND", "host and port are where clients connect, for all they do"},
	{"NOETL_COMMAND_BUS_METRICS_BIND", "ehdb.metrics_port, beside the monitoring port (http_port)"},
	{"NOETL_COMMAND_BUS_SHARD", oneProcess},
	{"NOETL_COMMAND_BUS_WRITER_ADDRS", oneProcess},
	{"NOETL_COMMAND_BUS_WRITER_DIR", "jetstream.store_dir"},
	{"NOETL_COMMAND_SHARD_COUNT", "ehdb.shards, and ehdb.map for which subjects go where"},
	{"NOETL_EHDB_CROSSSTORE_PARITY_LAG_TOLERANCE_SECS", "the window is measured, and never 0: " +
		"ehdb_crossstore_parity_lag_tolerance_seconds shows it"},
	{"NOETL_EHDB_EVENTLOG_MIRROR_ASYNC", "bus.mode shadow: the copy always follows by itself"},
	{"NOETL_EHDB_EVENTLOG_MIRROR_DRAIN_MAX_BATCHES", bounded},
	{"NOETL_EHDB_EVENTLOG_MIRROR_ENQUEUE_TIMEOUT_MS", bounded},
	{"NOETL_EHDB_EVENTLOG_MIRROR_FLUSH_TIMEOUT_MS", "what was read is written for five seconds; what is left is " +
		"read again, and counted as shutdown_abandoned"},
	{"NOETL_EHDB_EVENTLOG_MIRROR_QUEUE_CAPACITY", bounded},
	{"NOETL_EHDB_FENCING", "always on: a lock on the directory, and a lease on the servers"},
	{"NOETL_EHDB_SEAL_MAX_AGE_MS", "ehdb.seal_max_age"},
	{"NOETL_EHDB_SEAL_SWEEP_INTERVAL_MS", "ehdb.seal_max_age alone: there is no sweep"},
	{"NOETL_EHDB_SHUTDOWN_QUIESCE_MS", stopping},
	{"NOETL_EHDB_STOP_TIMEOUT_MS", stopping},
	{"NOETL_EHDB_TIER_SERVICE_BIND", "host and port are where clients connect, for all they do"},
	{"NOETL_EHDB_TIER_SERVICE_DIR", "jetstream.store_dir"},
}

// unused warns of each that is set.
func (c *Config) unused(lookupEnv func(string) (string, bool)) {
	for _, v := range variables {
		if text, ok := lookupEnv(v.Name); ok && text != "" {
			c.Warnings = append(c.Warnings,
				fmt.Sprintf("%s in the environment is not used here: %s", v.Name, v.Instead))
		}
	}
}
