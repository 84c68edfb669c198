package stream

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

const everything = ">"

// subjects gives a stream without subjects its name as the subject, and checks those it has.
func (c *completion) subjects() *server.ApiError {
	cfg := c.cfg
	if len(cfg.Subjects) == 0 {
		if cfg.Mirror == nil && len(cfg.Sources) == 0 {
			cfg.Subjects = []string{cfg.Name}
		}
		return nil
	}
	seen := make(map[string]bool, len(cfg.Subjects))
	for i, subject := range cfg.Subjects {
		if !subjects.ValidFilter(subject) {
			return invalid("invalid subject")
		}
		if seen[subject] {
			return invalid("duplicate subjects detected")
		}
		seen[subject] = true
		if err := c.captured(subject); err != nil {
			return err
		}
		for _, other := range cfg.Subjects[i+1:] {
			if server.SubjectsCollide(other, subject) {
				return invalid("subject %q overlaps with %q", subject, other)
			}
		}
	}
	return nil
}

// captured checks that a stream which acknowledges does not take the system's own subjects.
func (c *completion) captured(subject string) *server.ApiError {
	if subject == everything {
		if !c.cfg.NoAck {
			return invalid("capturing all subjects requires no-ack to be true")
		}
		if c.cfg.Replicas != 1 {
			return invalid("capturing all subjects requires replicas of 1")
		}
	}
	if c.cfg.NoAck {
		return nil
	}
	for _, space := range []string{"$JS.>", "$JSC.>", "$NRG.>"} {
		if server.SubjectsCollide(subject, space) && !server.SubjectMatchesFilter(subject, "$JS.EVENT.>") {
			return invalid("subjects that overlap with jetstream api require no-ack to be true")
		}
	}
	if server.SubjectsCollide(subject, "$SYS.>") && !server.SubjectMatchesFilter(subject, "$SYS.ACCOUNT.>") {
		return invalid("subjects that overlap with system api require no-ack to be true")
	}
	return nil
}
