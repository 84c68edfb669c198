package jetstreamapi

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// tierHere is the tier of what has no replicas, which is all that a single server keeps.
const tierHere = "R1"

// Tiers are an account's limits by tier: R1, R3 and so on, by the number of replicas.
type Tiers map[string]server.JetStreamAccountLimits

// Here returns the limits that hold on a single server. Without a tier for them nothing can be created.
func (t Tiers) Here() server.JetStreamAccountLimits {
	if l, ok := t[tierHere]; ok {
		return l
	}
	return NoLimits()
}

// SetTiers says which accounts have their limits by tier, in the place of what was said before. Their limits in
// SetAccounts are those of Tiers.Here. Call it before SetAccounts.
func (s *Service) SetTiers(tiers map[string]Tiers) { s.tiers.Store(&tiers) }

// tiers returns the account's limits by tier, nil if it has them for all alike.
func (a *account) tiers() Tiers {
	if t := a.svc.tiers.Load(); t != nil {
		return (*t)[a.name]
	}
	return nil
}

// checkTier refuses what an account with tiers has no limits for.
func (a *account) checkTier(cfg *server.StreamConfig) *jsapi.Error {
	t := a.tiers()
	if _, ok := t[fmt.Sprintf("R%d", max(cfg.Replicas, 1))]; t != nil && !ok {
		return server.NewJSNoLimitsError()
	}
	return nil
}

// addTiers shows usage and limits by tier: all usage is of the tier of a single server.
func (a *account) addTiers(st *server.JetStreamAccountStats) {
	t := a.tiers()
	if t == nil {
		return
	}
	st.Limits = server.JetStreamAccountLimits{}
	st.Tiers = make(map[string]server.JetStreamTier, len(t))
	for name, limits := range t {
		tier := server.JetStreamTier{Limits: limits}
		if name == tierHere {
			tier = st.JetStreamTier
			tier.Limits = limits
		}
		st.Tiers[name] = tier
	}
}
