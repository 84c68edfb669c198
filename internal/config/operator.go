package config

import (
	"slices"
	"strings"
	"time"
)

// Resolver is a directory that the claims of accounts are kept in, in operator mode.
type Resolver struct {
	Kind   string // "full" or "cache"; empty: there is no directory
	Dir    string
	Limit  int64         // number of accounts; 0: the default
	TTL    time.Duration // 0: as long as the claims
	Delete bool          // allow_delete
	Hard   bool          // hard_delete
}

// OperatorMode reports whether accounts and users come with JWTs.
func (c *Config) OperatorMode() bool {
	return len(c.Server.TrustedOperators) > 0 || len(c.Server.TrustedKeys) > 0
}

// readResolver reads what nats-server's parser has found to be well formed and keeps to itself.
func (c *Config) readResolver(file *parsedFile) {
	for _, key := range []string{"resolver", "account_resolver", "accounts_resolver"} {
		t := table(file.root[key])
		if t == nil {
			continue
		}
		text := func(key string) string {
			_, v := unwrap(t[key])
			s, _ := v.(string)
			return s
		}
		flag := func(key string) bool {
			_, v := unwrap(t[key])
			b, _ := v.(bool)
			return b
		}
		kind := strings.ToLower(text("type"))
		if kind != "full" && kind != "cache" {
			continue
		}
		_, limit := unwrap(t["limit"])
		c.Resolver = Resolver{Kind: kind, Dir: text("dir"), Delete: flag("allow_delete"), Hard: flag("hard_delete")}
		c.Resolver.Limit, _ = limit.(int64)
		c.Resolver.TTL, _ = time.ParseDuration(text("ttl"))
	}
	_, pinned := unwrap(file.root["resolver_pinned_accounts"])
	list, ok := pinned.([]any)
	if !ok {
		list = []any{pinned}
	}
	for _, e := range list {
		_, v := unwrap(e)
		if name, ok := v.(string); ok {
			c.PinnedAccounts = append(c.PinnedAccounts, name)
		}
	}
	slices.Sort(c.PinnedAccounts)
}
