package source

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
)

// headerIdentity carries the identity of a stream: what a source expects, and what the origin is.
const headerIdentity = "Nats-Stream-Identity"

// What nats-server sets in the consumers of its sources.
const (
	sourceAckWait  = 22 * time.Hour
	sourceInactive = 10 * time.Second
)

// consumerRequest is the request for the consumer to read from.
func (l *Link) consumerRequest(
	ctx context.Context, r *remote, prefix string, level int, identity string,
) (*question, error) {
	q := &question{}
	if level > levelNone {
		q.header = jsapi.AddHeader(nil, server.JSRequiredApiLevel, fmt.Sprint(level))
	}
	if level == levelIdentity && identity != "" && identity != anotherIdentity {
		q.header = jsapi.AddHeader(q.header, headerIdentity, identity)
	}
	src := l.o.Source
	api := func(format string, args ...any) string {
		return strings.TrimSuffix(prefix, ".") + "." + fmt.Sprintf(format, args...)
	}
	if src.Consumer != nil {
		q.subject = api("CONSUMER.RESET.%s.%s", src.Name, src.Consumer.Name)
		return q, nil
	}
	w, err := l.whereabouts(ctx, identity)
	if err != nil {
		return nil, err
	}
	cfg := l.consumerConfig(r.deliver, w)
	if level == levelNone {
		cfg.Sourcing = false
		cfg.Name += "_" + nuid.Next()
	}
	switch {
	case len(cfg.FilterSubjects) == 1:
		cfg.FilterSubject, cfg.FilterSubjects = cfg.FilterSubjects[0], nil
		q.subject = api("CONSUMER.CREATE.%s.%s.%s", src.Name, cfg.Name, cfg.FilterSubject)
	default:
		q.subject = api("CONSUMER.CREATE.%s", src.Name)
	}
	q.data, err = json.Marshal(&server.CreateConsumerRequest{Stream: src.Name, Config: *cfg})
	return q, err
}

func (l *Link) consumerConfig(deliver string, w whereabouts) *server.ConsumerConfig {
	kind, id := "JS_SRC_", "src"
	if l.o.Mirror {
		kind, id = "JS_MIRROR_", "mirror"
	}
	cfg := &server.ConsumerConfig{
		Name:              kind + l.stableID(),
		DeliverSubject:    deliver,
		AckPolicy:         server.AckNone,
		AckWait:           sourceAckWait,
		MaxDeliver:        1,
		Heartbeat:         heartbeat,
		FlowControl:       true,
		Direct:            true,
		Sourcing:          true,
		InactiveThreshold: sourceInactive,
		FilterSubjects:    filtersOf(l.o.Source),
		Metadata: map[string]string{
			"_nats." + id + ".stream": l.o.Target.Name(),
			"_nats." + id + ".acc":    l.o.Account,
		},
	}
	if l.o.Domain != "" {
		cfg.Metadata["_nats."+id+".domain"] = l.o.Domain
	}
	switch {
	case w.seq > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = server.DeliverByStartSequence, w.seq
	case !w.time.IsZero():
		at := w.time.UTC()
		cfg.DeliverPolicy, cfg.OptStartTime = server.DeliverByStartTime, &at
	}
	return cfg
}

// stableID is the same each time the link asks, so that an origin which deletes what was copied keeps one consumer for
// it, with its position.
func (l *Link) stableID() string {
	id := l.o.Target.Name() + " " + l.o.Account
	if l.o.Domain != "" {
		id += " " + l.o.Domain
	}
	id = stream.ShortHash(id)
	if l.o.Mirror {
		return id
	}
	same := 0
	for _, s := range l.o.Target.Config().Sources {
		if s.Name == l.o.Source.Name {
			same++
		}
	}
	if same > 1 {
		id += " " + l.index
	}
	return stream.ShortHash(id)
}
