package stream

import (
	"maps"
	"reflect"

	"github.com/nats-io/nats-server/v2/server"
)

// CheckUpdate checks that a running stream may go from old to cfg (both completed), and sets in cfg what sealing
// implies.
func CheckUpdate(old, cfg *server.StreamConfig, pedantic bool) *server.ApiError {
	// Sealing is never refused for what it changes along with it, not even in pedantic mode.
	_ = pedantic
	if cfg.Name != old.Name {
		return invalid("stream configuration name must match original")
	}
	if cfg.Replicas > 1 && cfg.Replicas != old.Replicas { // a stream that was a cluster's shows what it had there
		return server.NewJSStreamReplicasNotSupportedError()
	}
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{cfg.Storage != old.Storage, "stream configuration update can not change storage type"},
		{
			cfg.Retention != old.Retention &&
				(old.Retention == server.WorkQueuePolicy || cfg.Retention == server.WorkQueuePolicy),
			"stream configuration update can not change retention policy to/from workqueue",
		},
		{old.Sealed && !cfg.Sealed, "stream configuration update can not unseal a sealed stream"},
		{old.DenyDelete && !cfg.DenyDelete, "stream configuration update can not cancel deny message deletes"},
		{old.DenyPurge && !cfg.DenyPurge, "stream configuration update can not cancel deny purge"},
	} {
		if rule.broken {
			return invalid("%s", rule.text)
		}
	}
	if cfg.Mirror != nil && !reflect.DeepEqual(cfg.Mirror, old.Mirror) {
		return server.NewJSStreamMirrorNotUpdatableError()
	}
	if err := checkDiscardNewPer(cfg); err != nil {
		return err
	}
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{old.AllowMsgTTL && !cfg.AllowMsgTTL, "message TTL status can not be disabled"},
		{
			old.AllowMsgCounter != cfg.AllowMsgCounter,
			"stream configuration update can not change message counter setting",
		},
		{old.AllowMsgSchedules && !cfg.AllowMsgSchedules, "message schedules can not be disabled"},
		{old.PersistMode != cfg.PersistMode, "stream configuration update can not change persist mode"},
	} {
		if rule.broken {
			return invalid("%s", rule.text)
		}
	}
	if cfg.Sealed {
		cfg.MaxAge, cfg.Discard, cfg.AllowRollup = 0, server.DiscardNew, false
		cfg.DenyDelete, cfg.DenyPurge = true, true
	}
	return nil
}

// cloneConfig returns a copy that shares nothing with cfg.
func cloneConfig(cfg *server.StreamConfig) server.StreamConfig {
	out := *cfg
	out.Subjects = append([]string(nil), cfg.Subjects...)
	out.Placement = clone(cfg.Placement)
	if out.Placement != nil {
		out.Placement.Tags = append([]string(nil), cfg.Placement.Tags...)
	}
	out.SubjectTransform = clone(cfg.SubjectTransform)
	out.RePublish = clone(cfg.RePublish)
	out.Metadata = maps.Clone(cfg.Metadata)
	out.Mirror = cloneSource(cfg.Mirror)
	out.Sources = nil
	for _, src := range cfg.Sources {
		out.Sources = append(out.Sources, cloneSource(src))
	}
	return out
}

func cloneSource(s *server.StreamSource) *server.StreamSource {
	if s == nil {
		return nil
	}
	out := *s
	out.OptStartTime = clone(s.OptStartTime)
	out.SubjectTransforms = append([]server.SubjectTransformConfig(nil), s.SubjectTransforms...)
	out.External = clone(s.External)
	out.Consumer = clone(s.Consumer)
	return &out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
