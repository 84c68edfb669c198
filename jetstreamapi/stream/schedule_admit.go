package stream

import (
	"bytes"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/subjects"
)

// nextPurge is the value of Nats-Schedule-Next that ends a schedule.
const nextPurge = "purge"

// checkSchedules checks the headers of schedules. A schedule is made to roll up its subject.
func (c *settings) checkSchedules(f facts, in *incoming) *server.ApiError {
	h := &in.named
	if len(h.Schedule) > 0 || h.ScheduleTimeZone != nil {
		if err := c.checkSchedule(f, in); err != nil {
			if !c.cfg.AllowMsgSchedules {
				return server.NewJSMessageSchedulesDisabledError()
			}
			return err
		}
	}
	if len(h.ScheduleNext) > 0 {
		return c.checkScheduleNext(f, in)
	}
	if len(h.Scheduler) > 0 {
		return server.NewJSMessageSchedulesSchedulerInvalidError()
	}
	return nil
}

func (c *settings) checkSchedule(f facts, in *incoming) *server.ApiError {
	h := &in.named
	var zone *time.Location
	if h.ScheduleTimeZone != nil {
		var err error
		if zone, err = f.zone(h.ScheduleTimeZone); len(h.ScheduleTimeZone) == 0 || err != nil {
			return server.NewJSMessageSchedulesTimeZoneInvalidError()
		}
	}
	if len(h.Schedule) == 0 {
		return nil
	}
	now := time.Unix(0, in.now)
	fire, ok := nextFire(string(h.Schedule), zone, now, now)
	switch {
	case !ok:
		return server.NewJSMessageSchedulesPatternInvalidError()
	case fire.at.IsZero(): // "@at" the year 1 is none, as in nats-server
		return nil
	case !c.cfg.AllowMsgSchedules:
		return server.NewJSMessageSchedulesDisabledError()
	}
	if err := c.checkScheduleParts(in); err != nil {
		return err
	}
	in.scheduled, in.due = true, unixNano(fire.at)
	if len(h.Rollup) == 0 {
		in.header = jsapi.AddHeader(in.header, jsapi.HeaderRollup, jsapi.RollupSubject)
		in.changed = true
		h.Rollup = []byte(jsapi.RollupSubject)
	}
	return nil
}

// checkScheduleParts checks what a schedule says of the messages it makes.
func (c *settings) checkScheduleParts(in *incoming) *server.ApiError {
	h := &in.named
	if _, err := parseTTL(h.ScheduleTTL); err != nil {
		return server.NewJSMessageSchedulesTTLInvalidError()
	}
	if len(h.ScheduleRollup) > 0 && string(h.ScheduleRollup) != jsapi.RollupSubject {
		return server.NewJSMessageSchedulesRollupInvalidError()
	}
	if len(h.ScheduleTTL) > 0 && !c.cfg.AllowMsgTTL {
		return server.NewJSMessageTTLDisabledError()
	}
	target, source := h.ScheduleTarget, h.ScheduleSource
	if !literal(target) || bytes.Equal(target, in.subject) {
		return server.NewJSMessageSchedulesTargetInvalidError()
	}
	if len(source) > 0 &&
		(bytes.Equal(source, target) || bytes.Equal(source, in.subject) || !literal(source)) {
		return server.NewJSMessageSchedulesSourceInvalidError()
	}
	if !c.takes(target) {
		return server.NewJSMessageSchedulesTargetInvalidError()
	}
	if len(source) > 0 && !c.takes(source) {
		return server.NewJSMessageSchedulesSourceInvalidError()
	}
	if len(h.Rollup) > 0 && !bytes.EqualFold(h.Rollup, []byte(jsapi.RollupSubject)) {
		return server.NewJSMessageSchedulesRollupInvalidError()
	}
	return nil
}

// literal reports whether a message can be published to subject.
func literal(subject []byte) bool {
	return subjects.ValidPublish(subject) && !subjects.HasWildcard(subject)
}

// takes reports whether subject is one of the stream's.
func (c *settings) takes(subject []byte) bool {
	for _, s := range c.cfg.Subjects {
		if server.SubjectsCollide(s, string(subject)) {
			return true
		}
	}
	return false
}

// checkScheduleNext checks a message that ends a schedule, which is all that clients may do with this header.
func (c *settings) checkScheduleNext(f facts, in *incoming) *server.ApiError {
	h := &in.named
	switch {
	case string(h.ScheduleNext) != nextPurge, bytes.Equal(h.Scheduler, in.subject), !literal(h.Scheduler):
		return server.NewJSMessageSchedulesSchedulerInvalidError()
	case !c.cfg.AllowMsgSchedules:
		return server.NewJSMessageSchedulesDisabledError()
	case f.key(h.Scheduler).Count > 0 && !f.lastIsSchedule(h.Scheduler):
		return server.NewJSMessageSchedulesSchedulerInvalidError()
	}
	return nil
}

// zone implements facts.
func (s *Stream) zone(name []byte) (*time.Location, error) {
	return s.upkeep.schedules.zones.load(name)
}

// lastIsSchedule implements facts.
func (s *Stream) lastIsSchedule(subject []byte) bool {
	last := s.log.Key(subject).Last
	if e := s.upkeep.schedules.bySubject[string(subject)]; e != nil && e.seq == last {
		return true
	}
	r, err := s.log.Get(last) // not shown yet: it would be in the table
	return err == nil && len(jsapi.HeaderValue(r.Header, jsapi.HeaderSchedule)) > 0
}
