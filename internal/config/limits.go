package config

import "strings"

// ConnLimits are what the limits of an account in the file grant each of its connections; -1 means no limit.
type ConnLimits struct {
	MaxSubs    int64
	MaxPayload int64
}

// connLimits returns the limits of the accounts that have any, which nats-server's parser has found to be well formed.
func connLimits(file *parsedFile) map[string]ConnLimits {
	out := map[string]ConnLimits{}
	_, raw := unwrap(file.root["accounts"])
	accounts, _ := raw.(map[string]any)
	for name, a := range accounts {
		l := ConnLimits{MaxSubs: -1, MaxPayload: -1}
		for key, v := range table(table(a)["limits"]) {
			_, v = unwrap(v)
			n, ok := v.(int64)
			switch {
			case !ok:
			case strings.HasPrefix(key, "max_sub"):
				l.MaxSubs = n
			case strings.HasPrefix(key, "max_pay"):
				l.MaxPayload = n
			}
		}
		if l.MaxSubs >= 0 || l.MaxPayload >= 0 {
			out[name] = l
		}
	}
	return out
}
