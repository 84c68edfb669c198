package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Some limits would make the servers refuse what has passed the same limit here, or remove what is still here: a
// message takes more room there, by the headers of the chain, and what is removed here is removed there later. They are
// lifted upstream while the gateway has the say. What they were stands in the metadata there, for whoever finds the
// servers without a gateway.
const (
	metaLimits     = "ehdb.limits"
	metaAckPending = "ehdb.max_ack_pending"
)

// limits are those of a stream that are lifted.
type limits struct {
	MaxMsgs     int64 `json:"max_msgs"`
	MaxMsgsPer  int64 `json:"max_msgs_per_subject"`
	MaxBytes    int64 `json:"max_bytes"`
	PerSubject  bool  `json:"discard_new_per_subject,omitempty"`
	MarkerNanos int64 `json:"subject_delete_marker_ttl,omitempty"`
}

func limitsOf(c *server.StreamConfig) limits {
	return limits{c.MaxMsgs, c.MaxMsgsPer, c.MaxBytes, c.DiscardNewPer, int64(c.SubjectDeleteMarkerTTL)}
}

// Lifted is a stream's configuration for the servers while the gateway has the say.
func Lifted(cfg server.StreamConfig) server.StreamConfig {
	were := limitsOf(&cfg)
	if !cfg.DenyPurge { // else nothing removes upstream what these have removed here
		cfg.MaxMsgs, cfg.MaxBytes = -1, -1
	}
	_, own := fillerOf(&cfg, 0)
	late := cfg.Retention != server.LimitsPolicy                // what an ack has removed here is there still
	if (!own || late) && cfg.MaxMsgsPer > 0 && !cfg.DenyPurge { // fillers, or that, are beside messages
		cfg.MaxMsgsPer = -1
	}
	if cfg.Discard == server.DiscardNew {
		cfg.MaxMsgs, cfg.MaxBytes = -1, -1
		if cfg.DiscardNewPer {
			cfg.DiscardNewPer, cfg.MaxMsgsPer = false, -1
		}
	}
	cfg.SubjectDeleteMarkerTTL = 0 // those that are set here come with the chain
	if limitsOf(&cfg) == were {
		return cfg
	}
	doc, err := json.Marshal(were)
	if err != nil {
		panic("reverse: limits: " + err.Error())
	}
	cfg.Metadata = withMeta(cfg.Metadata, metaLimits, string(doc))
	return cfg
}

func withMeta(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = make(map[string]string)
	}
	out[key] = value
	return out
}

// Restore gives the servers' stream and its consumers back the limits that were lifted, as they say themselves. A
// max_bytes that is less than what the messages take there now is raised to that: nothing is removed by it.
func Restore(ctx context.Context, conn *nats.Conn, stream string, to cutover.Upstream) error {
	info, err := to.Info(ctx)
	if err != nil {
		return err
	}
	cfg := info.Config
	if doc, lifted := cfg.Metadata[metaLimits]; lifted {
		var were limits
		if err := json.Unmarshal([]byte(doc), &were); err != nil {
			return fmt.Errorf("metadata %s of the servers' stream: %w", metaLimits, err)
		}
		cfg.MaxMsgs, cfg.MaxMsgsPer, cfg.MaxBytes = were.MaxMsgs, were.MaxMsgsPer, were.MaxBytes
		cfg.DiscardNewPer, cfg.SubjectDeleteMarkerTTL = were.PerSubject, time.Duration(were.MarkerNanos)
		cfg.Metadata = maps.Clone(cfg.Metadata)
		delete(cfg.Metadata, metaLimits)
		cfg = Roomy(cfg, info.State.Bytes)
		body, err := json.Marshal(cfg)
		if err != nil {
			return err
		}
		if err := request(ctx, conn, "STREAM.UPDATE."+stream, string(body)); err != nil {
			return err
		}
	}
	list, err := to.Consumers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, restoreConsumer(ctx, conn, stream, c))
	}
	return errors.Join(errs...)
}

// Roomy is a configuration whose max_bytes, if there is one, has room for so many bytes.
func Roomy(cfg server.StreamConfig, size uint64) server.StreamConfig {
	if cfg.MaxBytes > 0 && size > uint64(cfg.MaxBytes) {
		cfg.MaxBytes = int64(size) //nolint:gosec // bytes of a stream
	}
	return cfg
}

// liftConsumer is a consumer's configuration for the servers while the gateway has the say: they take acks later than
// those here, so max_ack_pending would hold back what is delivered here.
func liftConsumer(cfg server.ConsumerConfig) server.ConsumerConfig {
	if cfg.AckPolicy == server.AckNone || cfg.MaxAckPending <= 0 {
		return cfg
	}
	cfg.Metadata = withMeta(cfg.Metadata, metaAckPending, strconv.Itoa(cfg.MaxAckPending))
	cfg.MaxAckPending = -1
	return cfg
}

func restoreConsumer(ctx context.Context, conn *nats.Conn, stream string, info *server.ConsumerInfo) error {
	if info.Config == nil {
		return nil
	}
	cfg := *info.Config
	n, err := strconv.Atoi(cfg.Metadata[metaAckPending])
	if err != nil {
		return nil //nolint:nilerr // it was not lifted
	}
	cfg.MaxAckPending, cfg.Metadata = n, maps.Clone(cfg.Metadata)
	delete(cfg.Metadata, metaAckPending)
	body, err := json.Marshal(server.CreateConsumerRequest{Stream: stream, Config: cfg})
	if err != nil {
		return err
	}
	return request(ctx, conn, "CONSUMER.CREATE."+stream+"."+info.Name, string(body))
}
