package stream

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// ask returns the configuration of another stream of the account, nil if there is none.
func (c *completion) ask(name string) *server.StreamConfig {
	if c.limits.Stream == nil {
		return nil
	}
	return c.limits.Stream(name)
}

// mirror checks a mirror, which takes over whether its origin allows direct gets.
func (c *completion) mirror() *server.ApiError {
	cfg, m := c.cfg, c.cfg.Mirror
	if m == nil {
		return nil
	}
	switch {
	case cfg.FirstSeq > 0:
		return server.NewJSMirrorWithFirstSeqError()
	case len(cfg.Subjects) > 0:
		return server.NewJSMirrorWithSubjectsError()
	case len(cfg.Sources) > 0:
		return server.NewJSMirrorWithSourcesError()
	case cfg.AllowMsgCounter:
		return server.NewJSMirrorWithCountersError()
	case cfg.AllowAtomicPublish:
		return server.NewJSMirrorWithAtomicPublishError()
	case cfg.AllowBatchPublish:
		return server.NewJSMirrorWithBatchPublishError()
	case cfg.AllowMsgSchedules:
		return server.NewJSMirrorWithMsgSchedulesError()
	case m.Consumer != nil && !validSourceConsumer(m):
		return server.NewJSMirrorDurableConsumerCfgInvalidError()
	case m.FilterSubject != "" && len(m.SubjectTransforms) != 0:
		return server.NewJSMirrorMultipleFiltersNotAllowedError()
	case cfg.SubjectDeleteMarkerTTL > 0:
		return invalid("subject delete markers forbidden on mirrors")
	}
	if err := checkMirrorTransforms(m.SubjectTransforms); err != nil {
		return err
	}
	return c.mirrorOrigin(m)
}

func checkMirrorTransforms(list []server.SubjectTransformConfig) *server.ApiError {
	for i, t := range list {
		if t.Source != "" && !subjects.ValidFilter(t.Source) {
			return server.NewJSMirrorInvalidSubjectFilterError(fmt.Errorf("%w %s", server.ErrBadSubject, t.Source))
		}
		if err := server.ValidateMapping(t.Source, t.Destination); err != nil {
			return server.NewJSMirrorInvalidTransformDestinationError(err)
		}
		for j, other := range list {
			if i != j && server.SubjectsCollide(t.Source, other.Source) {
				return server.NewJSMirrorOverlappingSubjectFiltersError()
			}
		}
	}
	return nil
}

func (c *completion) mirrorOrigin(m *server.StreamSource) *server.ApiError {
	if m.External != nil {
		c.external(m.External)
		return nil
	}
	if !validName(m.Name) {
		return server.NewJSMirrorInvalidStreamNameError()
	}
	origin := c.ask(m.Name)
	if origin == nil {
		return nil
	}
	c.origins = append(c.origins, origin.Subjects...)
	if tooSmall(c.cfg, origin) {
		return server.NewJSMirrorMaxMessageSizeTooBigError()
	}
	if c.pedantic && c.cfg.MirrorDirect != origin.AllowDirect {
		return pedanticError("origin stream has direct get set, mirror has it disabled")
	}
	c.cfg.MirrorDirect = origin.AllowDirect
	return nil
}

// tooSmall reports whether messages of origin may not fit into a stream of cfg.
func tooSmall(cfg, origin *server.StreamConfig) bool {
	return cfg.MaxMsgSize > 0 && origin.MaxMsgSize > 0 && cfg.MaxMsgSize < origin.MaxMsgSize
}

// validSourceConsumer checks the consumer that an origin provides: it decides itself where it starts and what it gives.
func validSourceConsumer(s *server.StreamSource) bool {
	deliver := s.Consumer.DeliverSubject
	return validName(s.Consumer.Name) && literal([]byte(deliver)) &&
		s.OptStartSeq == 0 && s.OptStartTime == nil && s.FilterSubject == ""
}

func (c *completion) sources() *server.ApiError {
	if len(c.cfg.Sources) > 0 && c.cfg.AllowMsgSchedules {
		return server.NewJSSourceWithMsgSchedulesError()
	}
	names, consumers := make(map[string]bool), make(map[string]bool)
	for _, src := range c.cfg.Sources {
		if src == nil || !validName(src.Name) {
			return server.NewJSSourceInvalidStreamNameError()
		}
		name := IndexName(src)
		if names[name] {
			return server.NewJSSourceDuplicateDetectedError()
		}
		names[name] = true
		if err := checkSourceFilters(src); err != nil {
			return err
		}
		if err := checkSourceConsumer(src, consumers); err != nil {
			return err
		}
		if err := c.sourceOrigin(src); err != nil {
			return err
		}
	}
	return nil
}

// checkSourceConsumer checks the consumer of a source, if it has one, and adds it to those that are taken.
func checkSourceConsumer(src *server.StreamSource, taken map[string]bool) *server.ApiError {
	if src.Consumer == nil {
		return nil
	}
	if !validSourceConsumer(src) {
		return server.NewJSSourceDurableConsumerCfgInvalidError()
	}
	name := originName(src) + " " + src.Consumer.Name
	if taken[name] {
		return server.NewJSSourceDurableConsumerDuplicateDetectedError()
	}
	taken[name] = true
	return nil
}

func (c *completion) sourceOrigin(src *server.StreamSource) *server.ApiError {
	if src.External != nil {
		c.external(src.External)
		return nil
	}
	origin := c.ask(src.Name)
	if origin == nil {
		return nil
	}
	c.origins = append(c.origins, origin.Subjects...)
	if tooSmall(c.cfg, origin) {
		return server.NewJSSourceMaxMessageSizeTooBigError()
	}
	return nil
}

func checkSourceFilters(src *server.StreamSource) *server.ApiError {
	if src.FilterSubject != "" && len(src.SubjectTransforms) != 0 {
		return server.NewJSSourceMultipleFiltersNotAllowedError()
	}
	for _, t := range src.SubjectTransforms {
		if t.Source != "" && !subjects.ValidFilter(t.Source) {
			return server.NewJSSourceInvalidSubjectFilterError(fmt.Errorf("%w %s", server.ErrBadSubject, t.Source))
		}
		if err := server.ValidateMapping(t.Source, t.Destination); err != nil {
			return server.NewJSSourceInvalidTransformDestinationError(err)
		}
	}
	for i, t := range src.SubjectTransforms {
		for j, other := range src.SubjectTransforms {
			if i != j && server.SubjectMatchesFilter(t.Source, other.Source) {
				return server.NewJSSourceOverlappingSubjectFiltersError()
			}
		}
	}
	return nil
}

// external notes the prefixes of another server or account.
func (c *completion) external(e *server.ExternalStream) {
	if e.DeliverPrefix != "" {
		c.deliverPrefixes = append(c.deliverPrefixes, e.DeliverPrefix)
	}
	if e.ApiPrefix != "" {
		c.apiPrefixes = append(c.apiPrefixes, e.ApiPrefix)
	}
}

// apiSpace is the prefix of this server's own API, as nats-server writes it in errors.
const apiSpace = "$JS.API"

// prefixes checks those that were noted.
func (c *completion) prefixes() *server.ApiError {
	for _, prefix := range c.deliverPrefixes {
		if !literal([]byte(prefix)) {
			return server.NewJSStreamInvalidExternalDeliverySubjError(prefix)
		}
		for _, subject := range c.origins {
			if server.SubjectsCollide(subject, prefix+"."+subject) {
				return server.NewJSStreamExternalDelPrefixOverlapsError(prefix, subject)
			}
		}
	}
	for _, prefix := range c.apiPrefixes {
		if !literal([]byte(prefix)) {
			return invalid("stream external api prefix %q must be a valid subject without wildcards", prefix)
		}
		if server.SubjectsCollide(prefix, apiSpace) {
			return server.NewJSStreamExternalApiOverlapError(prefix, apiSpace)
		}
	}
	return nil
}

// cycle refuses a stream whose messages could come back to where they started from.
func (c *completion) cycle() *server.ApiError {
	visited := make(map[string]bool)
	for visit := []*server.StreamConfig{c.cfg}; len(visit) > 0; visit = visit[1:] {
		cfg := visit[0]
		visited[cfg.Name] = true
		for _, o := range origins(cfg) {
			if visited[o.name] {
				if o.mirror || overlapsAny(cfg.Subjects, o.filter) {
					return server.NewJSStreamInvalidConfigError(errors.New("detected cycle"))
				}
				continue
			}
			if oc := c.ask(o.name); oc != nil {
				visit = append(visit, oc)
			}
		}
	}
	return nil
}

type origin struct {
	name, filter string
	mirror       bool
}

// origins returns the streams of the same account that cfg copies from.
func origins(cfg *server.StreamConfig) []origin {
	var out []origin
	for _, s := range cfg.Sources {
		if s != nil && s.External == nil {
			out = append(out, origin{name: s.Name, filter: s.FilterSubject})
		}
	}
	if cfg.Mirror != nil && cfg.Mirror.External == nil {
		out = append(out, origin{name: cfg.Mirror.Name, mirror: true})
	}
	return out
}

func overlapsAny(filters []string, filter string) bool {
	if filter == "" {
		return true
	}
	for _, f := range filters {
		if server.SubjectsCollide(f, filter) {
			return true
		}
	}
	return false
}

// CheckOrigins checks of a stream that is about to be made what Complete leaves to that moment: the filters and
// transforms of its mirror and sources. The error is the text of a 10049.
func CheckOrigins(cfg *server.StreamConfig) error {
	if m := cfg.Mirror; m != nil {
		if m.FilterSubject != "" && !subjects.ValidFilter(m.FilterSubject) {
			return fmt.Errorf("subject filter '%s' for the mirror %w", m.FilterSubject, server.ErrBadSubject)
		}
		if err := checkMappings(m.SubjectTransforms, "mirror"); err != nil {
			return err
		}
	}
	for _, src := range cfg.Sources {
		if src.FilterSubject != "" && !subjects.ValidFilter(src.FilterSubject) {
			return fmt.Errorf("subject filter '%s' for the source: %w", src.FilterSubject, server.ErrBadSubject)
		}
		if err := checkMappings(src.SubjectTransforms, "source"); err != nil {
			return err
		}
	}
	return nil
}

func checkMappings(list []server.SubjectTransformConfig, of string) error {
	for _, t := range list {
		if t.Destination == "" {
			continue
		}
		if _, err := server.NewSubjectTransform(t.Source, t.Destination); err != nil {
			return fmt.Errorf("subject transform from '%s' to '%s' for the %s: %w", t.Source, t.Destination, of, err)
		}
	}
	return nil
}
