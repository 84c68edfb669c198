package config

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// AccountLimits are an account's JetStream limits; -1 means no limit.
type AccountLimits = server.JetStreamAccountLimits

// noLimits is what an account gets that only says "enabled".
func noLimits() AccountLimits {
	return AccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
}

// jetStreamAccounts returns which accounts have JetStream. As in nats-server, the global account has it when no other
// is configured, and else those that say so.
func jetStreamAccounts(file *parsedFile, o *server.Options) (map[string]AccountLimits, error) {
	if !o.JetStream {
		return nil, nil
	}
	out, others := map[string]AccountLimits{}, false
	_, raw := unwrap(file.root["accounts"])
	accounts, _ := raw.(map[string]any) // the other form, a list of names, has no JetStream
	for name, v := range accounts {
		others = others || name != server.DEFAULT_GLOBAL_ACCOUNT && name != o.SystemAccount
		limits, enabled := accountLimits(table(v)["jetstream"])
		if !enabled {
			continue
		}
		if name == o.SystemAccount && name != "" {
			return nil, fmt.Errorf("jetstream can not be enabled on the system account %q", name)
		}
		out[name] = limits
	}
	if _, configured := out[server.DEFAULT_GLOBAL_ACCOUNT]; !others && !configured {
		out[server.DEFAULT_GLOBAL_ACCOUNT] = noLimits()
	}
	return out, nil
}

// accountLimits reads an account's jetstream key, which nats-server's parser has found to be well formed.
func accountLimits(v any) (l AccountLimits, enabled bool) {
	_, raw := unwrap(v)
	switch raw := raw.(type) {
	case bool:
		return noLimits(), raw
	case string:
		return noLimits(), strings.HasPrefix(strings.ToLower(raw), "enable")
	case map[string]any:
		l = noLimits()
		for k, e := range raw {
			_, val := unwrap(e)
			setLimit(&l, strings.ToLower(k), val)
		}
		return l, true
	}
	return l, false
}

func setLimit(l *AccountLimits, key string, val any) {
	if b, ok := val.(bool); ok {
		l.MaxBytesRequired = b
		return
	}
	n, ok := val.(int64)
	if !ok {
		return
	}
	switch key {
	case "max_memory", "max_mem", "mem", "memory":
		l.MaxMemory = n
	case "max_store", "max_file", "max_disk", "store", "disk":
		l.MaxStore = n
	case "max_streams", "streams":
		l.MaxStreams = int(n)
	case "max_consumers", "consumers":
		l.MaxConsumers = int(n)
	case "mem_max_stream_bytes", "memory_max_stream_bytes":
		l.MemoryMaxStreamBytes = n
	case "disk_max_stream_bytes", "store_max_stream_bytes":
		l.StoreMaxStreamBytes = n
	case "max_ack_pending":
		l.MaxAckPending = int(n)
	}
}
