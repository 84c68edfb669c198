package jetstreamapi

import (
	"maps"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// Reserved metadata: what an asset needs is stored with it; what the server is, is added to answers about one asset.

// API levels at which features came.
const (
	levelTTL       = 1 // message TTLs, delete markers, pause, priority groups
	levelAtomic    = 2 // atomic publish, counters, schedules, async persist
	levelFastBatch = 4 // fast ingest, flow control acks
)

// setStreamLevel stores the API level the stream needs, and drops what must not be stored.
func setStreamLevel(cfg *server.StreamConfig) {
	level := 0
	if cfg.AllowMsgTTL || cfg.SubjectDeleteMarkerTTL > 0 {
		level = levelTTL
	}
	async := cfg.PersistMode == server.AsyncPersistMode
	if cfg.AllowMsgCounter || cfg.AllowAtomicPublish || cfg.AllowMsgSchedules || async {
		level = levelAtomic
	}
	if cfg.AllowBatchPublish {
		level = levelFastBatch
	}
	cfg.Metadata = withLevel(cfg.Metadata, level)
}

// setConsumerLevel is setStreamLevel for a consumer.
func setConsumerLevel(cfg *server.ConsumerConfig) {
	level := 0
	paused := cfg.PauseUntil != nil && !cfg.PauseUntil.IsZero()
	if paused || cfg.PriorityPolicy != server.PriorityNone || cfg.PinnedTTL != 0 || len(cfg.PriorityGroups) > 0 {
		level = levelTTL
	}
	if cfg.AckPolicy == server.AckFlowControl {
		level = levelFastBatch
	}
	cfg.Metadata = withLevel(cfg.Metadata, level)
}

func withLevel(metadata map[string]string, level int) map[string]string {
	out := withoutServer(metadata)
	if out == nil {
		out = make(map[string]string, 1)
	}
	out[server.JSRequiredLevelMetadataKey] = strconv.Itoa(level)
	return out
}

// withoutServer returns a copy without what describes a server; nil if metadata is.
func withoutServer(metadata map[string]string) map[string]string {
	out := maps.Clone(metadata)
	delete(out, server.JSServerVersionMetadataKey)
	delete(out, server.JSServerLevelMetadataKey)
	return out
}

// withServer returns a copy with what describes this server.
func withServer(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata)+2)
	maps.Copy(out, metadata)
	out[server.JSServerVersionMetadataKey] = server.VERSION
	out[server.JSServerLevelMetadataKey] = strconv.Itoa(jsapi.APILevel)
	return out
}

// likeBefore returns metadata with the needed level as old has it, so that the comparison of two configurations is
// about what the client set.
func likeBefore(metadata, old map[string]string) map[string]string {
	out := withoutServer(metadata)
	delete(out, server.JSRequiredLevelMetadataKey)
	if level, ok := old[server.JSRequiredLevelMetadataKey]; ok {
		if out == nil {
			out = make(map[string]string, 1)
		}
		out[server.JSRequiredLevelMetadataKey] = level
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
