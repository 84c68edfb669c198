package stream

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// The shortest times a configuration may name.
const (
	minMaxAge     = 100 * time.Millisecond
	minDuplicates = 100 * time.Millisecond
	minMarkerTTL  = time.Second
)

// Limits are what the account and the server allow a stream; 0 or -1: no limit.
type Limits struct {
	MaxBytesRequired bool
	MaxStreamBytes   int64 // for the config's storage type
	Duplicates       time.Duration
	// Stream returns the configuration of another stream of the account, nil if there is none. May be nil.
	Stream func(name string) *server.StreamConfig
}

// Complete fills the defaults of a configuration and checks it by nats-server's rules and texts (but for the overlap of
// its subjects with those of other streams). pedantic refuses what it would have to change. limits are the server's and
// account's.
//
// More than one replica passes: nats-server refuses it only once it has looked for the stream, and so do the callers.
func Complete(cfg *server.StreamConfig, pedantic bool, limits Limits) *server.ApiError {
	if cfg == nil {
		return invalid("stream configuration invalid")
	}
	c := completion{cfg: cfg, pedantic: pedantic, limits: limits}
	for _, step := range []func() *server.ApiError{
		c.names, c.enums, c.replicas, c.amounts, c.age, c.duplicates, c.permissions, c.counter, c.discard, c.markers,
		c.schedules, c.persistence, c.mirror, c.sources, c.prefixes, c.cycle, c.subjects, c.bytes, c.transform,
		c.republish, c.placement,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// completion is one run of [Complete]. Its steps are in nats-server's order, which decides the error of a configuration
// with several faults.
type completion struct {
	cfg      *server.StreamConfig
	pedantic bool
	limits   Limits

	origins                      []string // subjects of the streams it copies from
	deliverPrefixes, apiPrefixes []string // of external streams
}

func invalid(format string, args ...any) *server.ApiError {
	return server.NewJSStreamInvalidConfigError(fmt.Errorf(format, args...))
}

func pedanticError(format string, args ...any) *server.ApiError {
	return server.NewJSPedanticError(fmt.Errorf(format, args...))
}

func validName(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\r\n\f.*>\\/")
}

func (c *completion) names() *server.ApiError {
	if !validName(c.cfg.Name) {
		return invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
	}
	if len(c.cfg.Name) > server.JSMaxNameLen {
		return invalid("stream name is too long, maximum allowed is %d", server.JSMaxNameLen)
	}
	if len(c.cfg.Description) > server.JSMaxDescriptionLen {
		return invalid("stream description is too long, maximum allowed is %d", server.JSMaxDescriptionLen)
	}
	size := 0
	for k, v := range c.cfg.Metadata {
		size += len(k) + len(v)
	}
	if size > server.JSMaxMetadataLen {
		return invalid("stream metadata exceeds maximum size of %d bytes", server.JSMaxMetadataLen)
	}
	return nil
}

func (c *completion) enums() *server.ApiError {
	if _, err := c.cfg.Retention.MarshalJSON(); err != nil {
		return invalid("invalid retention")
	}
	if _, err := c.cfg.Discard.MarshalJSON(); err != nil {
		return invalid("invalid discard policy")
	}
	if _, err := c.cfg.Compression.MarshalJSON(); err != nil {
		return invalid("invalid compression")
	}
	if c.cfg.Storage == 0 {
		c.cfg.Storage = server.FileStorage
	}
	if _, err := c.cfg.Storage.MarshalJSON(); err != nil {
		return invalid("invalid storage type")
	}
	return nil
}

func (c *completion) replicas() *server.ApiError {
	if c.cfg.Replicas == 0 {
		c.cfg.Replicas = 1
	}
	if c.cfg.Replicas > server.StreamMaxReplicas {
		return invalid("maximum replicas is %d", server.StreamMaxReplicas)
	}
	if c.cfg.Replicas < 0 {
		return server.NewJSReplicasCountCannotBeNegativeError()
	}
	return nil
}

// amounts sets what has no limit to -1.
func (c *completion) amounts() *server.ApiError {
	size, consumers := int64(c.cfg.MaxMsgSize), int64(c.cfg.MaxConsumers)
	for _, a := range []struct {
		name string
		v    *int64
	}{
		{"max_msgs", &c.cfg.MaxMsgs},
		{"max_msgs_per_subject", &c.cfg.MaxMsgsPer},
		{"max_bytes", &c.cfg.MaxBytes},
		{"max_msg_size", &size},
		{"max_consumers", &consumers},
	} {
		if c.pedantic && *a.v < -1 {
			return pedanticError("%s must be set to -1", a.name)
		}
		if *a.v <= 0 {
			*a.v = -1
		}
	}
	c.cfg.MaxMsgSize, c.cfg.MaxConsumers = int32(size), int(consumers) //nolint:gosec // size came from an int32
	return nil
}

func (c *completion) age() *server.ApiError {
	if c.cfg.MaxAge < 0 {
		return invalid("max age can not be negative")
	}
	if c.cfg.MaxAge != 0 && c.cfg.MaxAge < minMaxAge {
		return invalid("max age needs to be >= 100ms")
	}
	return nil
}

func (c *completion) duplicates() *server.ApiError {
	cfg, most := c.cfg, c.limits.Duplicates
	if cfg.Duplicates == 0 && cfg.Mirror == nil && len(cfg.Sources) == 0 {
		if err := c.defaultDuplicates(); err != nil {
			return err
		}
	}
	switch {
	case cfg.Duplicates < 0:
		return invalid("duplicates window can not be negative")
	case cfg.MaxAge != 0 && cfg.Duplicates > cfg.MaxAge:
		return invalid("duplicates window can not be larger then max age")
	case most > 0 && cfg.Duplicates > most:
		return invalid("duplicates window can not be larger then server limit of %v", most)
	case cfg.Duplicates > 0 && cfg.Duplicates < minDuplicates:
		return invalid("duplicates window needs to be >= 100ms")
	}
	return nil
}

func (c *completion) defaultDuplicates() *server.ApiError {
	window := server.StreamDefaultDuplicatesWindow
	if most := c.limits.Duplicates; most > 0 && most < window {
		if c.pedantic {
			return pedanticError("duplicate window limits are higher than current limits")
		}
		window = most
	}
	if age := c.cfg.MaxAge; age != 0 && age < window {
		if c.pedantic {
			return pedanticError("duplicate window cannot be bigger than max age")
		}
		window = age
	}
	c.cfg.Duplicates = window
	return nil
}

func (c *completion) permissions() *server.ApiError {
	if c.cfg.DenyPurge && c.cfg.AllowRollup {
		return invalid("roll-ups require the purge permission")
	}
	return nil
}

func (c *completion) counter() *server.ApiError {
	if !c.cfg.AllowMsgCounter {
		return nil
	}
	switch {
	case c.cfg.Discard == server.DiscardNew:
		return invalid("counter stream cannot use discard new")
	case c.cfg.AllowMsgTTL:
		return invalid("counter stream cannot use message TTLs")
	case c.cfg.AllowMsgSchedules:
		return invalid("counter stream cannot use message schedules")
	case c.cfg.Retention != server.LimitsPolicy:
		return invalid("counter stream can only use limits retention")
	}
	return nil
}

func (c *completion) discard() *server.ApiError { return checkDiscardNewPer(c.cfg) }

func checkDiscardNewPer(cfg *server.StreamConfig) *server.ApiError {
	if !cfg.DiscardNewPer {
		return nil
	}
	if cfg.Discard != server.DiscardNew {
		return invalid("discard new per subject requires discard new policy to be set")
	}
	if cfg.MaxMsgsPer <= 0 {
		return invalid("discard new per subject requires max msgs per subject > 0")
	}
	return nil
}

func (c *completion) markers() *server.ApiError {
	cfg := c.cfg
	switch {
	case cfg.SubjectDeleteMarkerTTL == 0:
		return nil
	case cfg.SubjectDeleteMarkerTTL < 0:
		return invalid("subject delete marker TTL must not be negative")
	case cfg.SubjectDeleteMarkerTTL < minMarkerTTL:
		return invalid("subject delete marker TTL must be at least 1 second")
	case c.pedantic && !cfg.AllowMsgTTL:
		return invalid("subject delete marker cannot be set if message TTLs are disabled")
	case c.pedantic && !cfg.AllowRollup:
		return invalid("subject delete marker cannot be set if roll-ups are disabled")
	}
	cfg.AllowMsgTTL = true
	if !cfg.AllowRollup {
		cfg.AllowRollup, cfg.DenyPurge = true, false
	}
	return nil
}

func (c *completion) schedules() *server.ApiError {
	cfg := c.cfg
	if !cfg.AllowMsgSchedules {
		return nil
	}
	if cfg.Discard == server.DiscardNew {
		return invalid("message scheduling cannot use discard new")
	}
	if cfg.AllowRollup {
		return nil
	}
	if c.pedantic {
		return invalid("message scheduling cannot be set if roll-ups are disabled")
	}
	cfg.AllowRollup, cfg.DenyPurge = true, false
	return nil
}

// persistence allows async mode where nats-server does. It is served as the default mode, which promises more.
func (c *completion) persistence() *server.ApiError {
	if c.cfg.PersistMode != server.AsyncPersistMode {
		return nil
	}
	switch {
	case c.cfg.Storage != server.FileStorage:
		return invalid("async persist mode is only supported on file storage")
	case c.cfg.Replicas > 1:
		return invalid("async persist mode is not supported on replicated streams")
	case c.cfg.AllowAtomicPublish:
		return invalid("async persist mode is not supported with atomic batch publish")
	}
	return nil
}

func (c *completion) bytes() *server.ApiError {
	if c.limits.MaxBytesRequired && c.cfg.MaxBytes <= 0 {
		return server.NewJSStreamMaxBytesRequiredError()
	}
	if c.limits.MaxStreamBytes > 0 && c.cfg.MaxBytes > c.limits.MaxStreamBytes {
		return server.NewJSStreamMaxStreamBytesExceededError()
	}
	return nil
}

func (c *completion) transform() *server.ApiError {
	t := c.cfg.SubjectTransform
	if t == nil {
		return nil
	}
	if t.Source != "" && !subjects.ValidFilter(t.Source) {
		return server.NewJSStreamTransformInvalidSourceError(fmt.Errorf("%w %s", server.ErrBadSubject, t.Source))
	}
	if err := server.ValidateMapping(t.Source, t.Destination); err != nil {
		return server.NewJSStreamTransformInvalidDestinationError(err)
	}
	if _, err := server.NewSubjectTransform(t.Source, t.Destination); err != nil {
		return invalid("stream subject transform from '%s' to '%s': %w", t.Source, t.Destination, err)
	}
	return nil
}

func (c *completion) republish() *server.ApiError {
	r := c.cfg.RePublish
	if r == nil {
		return nil
	}
	if r.Source == "" {
		if c.pedantic {
			return pedanticError("republish source can not be empty")
		}
		r.Source = everything
	}
	// "everything as it is" is the subject transform's mapping where that takes the stream's only subject: no cycle.
	if t := c.cfg.SubjectTransform; r.Destination == everything && r.Source == everything && t != nil &&
		len(c.cfg.Subjects) == 1 && t.Source == c.cfg.Subjects[0] {
		if c.pedantic {
			return pedanticError("implicit republish based on subject transform")
		}
		r.Source, r.Destination = t.Destination, t.Destination
	}
	for _, subject := range c.cfg.Subjects {
		if server.SubjectsCollide(r.Destination, subject) {
			return invalid("stream configuration for republish destination forms a cycle")
		}
	}
	if _, err := server.NewSubjectTransform(r.Source, r.Destination); err != nil {
		return invalid("stream configuration for republish with transform from '%s' to '%s' not valid",
			r.Source, r.Destination)
	}
	return nil
}

func (c *completion) placement() *server.ApiError {
	if c.cfg.Placement != nil && reflect.DeepEqual(c.cfg.Placement, &server.Placement{}) {
		c.cfg.Placement = nil
	}
	if c.cfg.Placement != nil && c.cfg.Placement.Preferred != "" {
		return invalid("preferred server not permitted in placement")
	}
	return nil
}
