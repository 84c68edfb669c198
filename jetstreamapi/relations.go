package jetstreamapi

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/subjects"
)

// checkRelations checks what a stream's configuration says about other streams of the account: its mirror and sources.
// It sets MirrorDirect to what the origin allows.
func (a *account) checkRelations(req *jsapi.StreamCreateRequest) *jsapi.Error {
	cfg := &req.StreamConfig
	if m := cfg.Mirror; m != nil && m.External == nil {
		if origin := a.configOf(m.Name); origin != nil {
			if tooSmall(cfg, origin) {
				return server.NewJSMirrorMaxMessageSizeTooBigError()
			}
			if req.Pedantic && cfg.MirrorDirect != origin.AllowDirect {
				return server.NewJSPedanticError(errors.New("origin stream has direct get set, mirror has it disabled"))
			}
			cfg.MirrorDirect = origin.AllowDirect
		}
	}
	for _, src := range cfg.Sources {
		if src.External == nil {
			if origin := a.configOf(src.Name); origin != nil && tooSmall(cfg, origin) {
				return server.NewJSSourceMaxMessageSizeTooBigError()
			}
		}
	}
	if a.formsCycle(cfg) {
		return server.NewJSStreamInvalidConfigError(errors.New("detected cycle"))
	}
	return nil
}

// tooSmall reports whether messages of origin may not fit into a stream of cfg.
func tooSmall(cfg, origin *server.StreamConfig) bool {
	return cfg.MaxMsgSize > 0 && origin.MaxMsgSize > 0 && cfg.MaxMsgSize < origin.MaxMsgSize
}

func (a *account) configOf(name string) *server.StreamConfig {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.streams[name]; e != nil {
		return e.config()
	}
	return nil
}

// formsCycle reports whether a message could come back to the stream it started from.
func (a *account) formsCycle(cfg *server.StreamConfig) bool {
	visited := make(map[string]bool)
	for visit := []*server.StreamConfig{cfg}; len(visit) > 0; visit = visit[1:] {
		c := visit[0]
		visited[c.Name] = true
		for _, o := range origins(c) {
			if visited[o.name] {
				if o.mirror || overlapsAny(c.Subjects, o.filter) {
					return true
				}
				continue
			}
			if oc := a.configOf(o.name); oc != nil {
				visit = append(visit, oc)
			}
		}
	}
	return false
}

type origin struct {
	name, filter string
	mirror       bool
}

// origins returns the streams of the same account that c copies from.
func origins(c *server.StreamConfig) []origin {
	var out []origin
	for _, s := range c.Sources {
		if s.External == nil {
			out = append(out, origin{name: s.Name, filter: s.FilterSubject})
		}
	}
	if c.Mirror != nil && c.Mirror.External == nil {
		out = append(out, origin{name: c.Mirror.Name, mirror: true})
	}
	return out
}

func overlapsAny(filters []string, filter string) bool {
	if filter == "" {
		return true
	}
	for _, f := range filters {
		if subjects.Overlap(f, filter) {
			return true
		}
	}
	return false
}
