package stream

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// settings are a configuration prepared for the publish path. They are replaced, never changed.
type settings struct {
	cfg       server.StreamConfig
	ack       []byte // the constant start of a PubAck
	sizeOf    func(key, header, data int) uint64
	maxMsgs   uint64 // 0: no limit; likewise below
	maxBytes  uint64
	maxPer    uint64
	transform mapping // nil: none
	republish mapping // nil: none
}

// mapping maps a subject, or returns an error where it does not apply.
type mapping interface {
	Match(subject string) (string, error)
}

func newSettings(cfg *server.StreamConfig, domain string) (*settings, error) {
	c := &settings{
		cfg:      cloneConfig(cfg),
		ack:      jsapi.PubAckPrefix(cfg.Name, domain),
		sizeOf:   SizeOf(cfg.Storage),
		maxMsgs:  limit(cfg.MaxMsgs),
		maxBytes: limit(cfg.MaxBytes),
		maxPer:   limit(cfg.MaxMsgsPer),
	}
	if t := cfg.SubjectTransform; t != nil {
		m, err := server.NewSubjectTransform(t.Source, t.Destination)
		if err != nil {
			return nil, err
		}
		if m != nil { // a transform without a destination is none
			c.transform = m
		}
	}
	if r := cfg.RePublish; r != nil {
		m, err := server.NewSubjectTransform(r.Source, r.Destination)
		if err != nil {
			return nil, err
		}
		if m != nil {
			c.republish = m
		}
	}
	return c, nil
}

// mapped returns the subject under which a message is stored. One that the mapping does not apply to stays.
func (c *settings) mapped(subject []byte) []byte {
	if c.transform == nil {
		return subject
	}
	to, err := c.transform.Match(string(subject))
	if err != nil {
		return subject
	}
	return []byte(to)
}

func limit(n int64) uint64 {
	if n <= 0 {
		return 0
	}
	return uint64(n)
}

// size is what in counts for the limits.
func (c *settings) size(in *incoming) uint64 {
	return c.sizeOf(len(in.subject), len(in.header), len(in.data))
}

// evicts reports whether a message over the limits pushes the oldest out.
func (c *settings) evicts() bool {
	return c.cfg.Discard == server.DiscardOld && (c.maxMsgs > 0 || c.maxBytes > 0)
}

// replacesBySize reports whether admission needs the size of the message that a new one would replace.
func (c *settings) replacesBySize() bool {
	return c.cfg.Discard == server.DiscardNew && c.maxBytes > 0 && c.maxPer > 0
}

// SizeOf returns how a message counts for max_bytes and in state.bytes, from the lengths of its parts. Clients see
// these numbers, so they are those of nats-server's stores.
func SizeOf(t server.StorageType) func(key, header, data int) uint64 {
	if t == server.MemoryStorage {
		return func(key, header, data int) uint64 { return uint64(key+header+data) + 16 } //nolint:gosec // lengths
	}
	return func(key, header, data int) uint64 {
		n := uint64(22+8) + uint64(key+data) //nolint:gosec // lengths
		if header > 0 {
			n += 4 + uint64(header)
		}
		return n
	}
}

// LogSpec returns the log that a stream with this (completed) configuration needs; the caller chooses
// its shards, and a store in memory for memory storage.
func LogSpec(account string, cfg *server.StreamConfig) storage.LogSpec {
	return storage.LogSpec{
		FirstSeq: cfg.FirstSeq,
		Name:     account + "/" + cfg.Name,
		Compress: cfg.Compression == server.S2Compression,
		Size:     SizeOf(cfg.Storage),
	}
}
