package consumer

import (
	"errors"
	"reflect"

	"github.com/nats-io/nats-server/v2/server"
)

// CheckUpdate checks that a running consumer may go from old to cfg (both completed). One rule needs the bus and is
// left to the caller: a new deliver subject is refused (10013) while somebody listens on the old one.
func CheckUpdate(old, cfg *server.ConsumerConfig) *server.ApiError {
	if reflect.DeepEqual(old, cfg) {
		return nil
	}
	if err := unchangeable(old, cfg); err != nil {
		return server.NewJSConsumerCreateError(err)
	}
	if n := len(cfg.BackOff); n > 0 && cfg.MaxDeliver != -1 && n > cfg.MaxDeliver {
		return server.NewJSConsumerMaxDeliverBackoffError()
	}
	return nil
}

// unchangeable returns why cfg differs from old in something that is fixed at creation.
func unchangeable(old, cfg *server.ConsumerConfig) error {
	for _, f := range []struct {
		changed bool
		text    string
	}{
		{old.DeliverPolicy != cfg.DeliverPolicy, "deliver policy can not be updated"},
		{old.MemoryStorage != cfg.MemoryStorage, "storage type can not be updated"},
		{old.Direct != cfg.Direct, "direct can not be updated"},
		{old.Sourcing != cfg.Sourcing, "sourcing can not be updated"},
		{old.OptStartSeq != cfg.OptStartSeq, "start sequence can not be updated"},
		{startTimeChanged(old, cfg), "start time can not be updated"},
		{old.AckPolicy != cfg.AckPolicy, "ack policy can not be updated"},
		{old.ReplayPolicy != cfg.ReplayPolicy, "replay policy can not be updated"},
		{old.Heartbeat != cfg.Heartbeat, "heart beats can not be updated"},
		{old.FlowControl != cfg.FlowControl, "flow control can not be updated"},
		{old.DeliverSubject == "" && cfg.DeliverSubject != "", "can not update pull consumer to push based"},
		{old.DeliverSubject != "" && cfg.DeliverSubject == "", "can not update push consumer to pull based"},
		{old.MaxWaiting != cfg.MaxWaiting, "max waiting can not be updated"},
		{Peeks(old) != Peeks(cfg), KeyPeek + " can not be updated"},
		{old.Metadata[KeyKeyShared] != cfg.Metadata[KeyKeyShared], KeyKeyShared + " can not be updated"},
	} {
		if f.changed {
			return errors.New(f.text)
		}
	}
	return nil
}

func startTimeChanged(old, cfg *server.ConsumerConfig) bool {
	if old.OptStartTime == nil || cfg.OptStartTime == nil {
		return old.OptStartTime != cfg.OptStartTime
	}
	return !old.OptStartTime.Equal(*cfg.OptStartTime)
}
