package auth

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// The defaults of allow_responses.
const (
	defaultResponseMax     = 1
	defaultResponseExpires = 2 * time.Minute
)

// Permissions are what a client may publish and subscribe to. Immutable.
type Permissions struct {
	pubAllow, pubDeny []rule // pubAllow nil: everything
	subAllow, subDeny []rule
	pubAllowSet       bool
	subAllowSet       bool
	response          *Response
	source            *server.Permissions
}

// Response lets a client answer the requests that it receives.
type Response struct {
	Max     int           // answers per request; negative: any number
	Expires time.Duration // from the request's delivery; negative: no end
}

// rule is a subject filter, for some subscriptions with a queue group.
type rule struct{ filter, queue string }

// NewPermissions compiles p; nil permits everything and yields nil.
func NewPermissions(p *server.Permissions) (*Permissions, error) {
	if p == nil {
		return nil, nil //nolint:nilnil // no permissions configured means no restrictions
	}
	out := &Permissions{source: p}
	var err error
	if p.Publish != nil {
		out.pubAllowSet = p.Publish.Allow != nil
		if out.pubAllow, err = rules(p.Publish.Allow); err != nil {
			return nil, err
		}
		if out.pubDeny, err = rules(p.Publish.Deny); err != nil {
			return nil, err
		}
	}
	if p.Subscribe != nil {
		out.subAllowSet = len(p.Subscribe.Allow) > 0
		if out.subAllow, err = rules(p.Subscribe.Allow); err != nil {
			return nil, err
		}
		if out.subDeny, err = rules(p.Subscribe.Deny); err != nil {
			return nil, err
		}
	}
	if p.Response != nil {
		out.response = &Response{Max: p.Response.MaxMsgs, Expires: p.Response.Expires}
		if out.response.Max == 0 {
			out.response.Max = defaultResponseMax
		}
		if out.response.Expires == 0 {
			out.response.Expires = defaultResponseExpires
		}
		out.pubAllowSet = true // answers are the exception, so there has to be a rule
	}
	return out, nil
}

// denyPublish returns p without the right to publish to subject.
func (p *Permissions) denyPublish(subject string) *Permissions {
	out := *p
	out.pubDeny = append(slices.Clip(out.pubDeny), rule{filter: subject})
	return &out
}

func rules(list []string) ([]rule, error) {
	var out []rule
	for _, s := range list {
		f := strings.Fields(s)
		if len(f) == 0 || len(f) > 2 || !server.IsValidSubject(f[0]) || (len(f) == 2 && !server.IsValidSubject(f[1])) {
			return nil, fmt.Errorf("invalid subject %q", s)
		}
		r := rule{filter: f[0]}
		if len(f) == 2 { //nolint:mnd // subject and queue
			r.queue = f[1]
		}
		out = append(out, r)
	}
	return out, nil
}

// Public returns the permissions as they are shown to the user, nil if everything is permitted.
func (p *Permissions) Public() *server.Permissions {
	if p == nil {
		return nil
	}
	out := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	if p.source.Publish != nil {
		*out.Publish = *p.source.Publish
	}
	if p.source.Subscribe != nil {
		*out.Subscribe = *p.source.Subscribe
	}
	if p.response != nil {
		out.Response = &server.ResponsePermission{MaxMsgs: p.response.Max, Expires: p.response.Expires}
	}
	return out
}

// Response returns the permission to answer, nil if there is none.
func (p *Permissions) Response() *Response {
	if p == nil {
		return nil
	}
	return p.response
}

// RestrictsPublish reports whether there is any subject that may not be published to.
func (p *Permissions) RestrictsPublish() bool {
	return p != nil && (p.pubAllowSet || len(p.pubDeny) > 0)
}

// MayPublish reports whether subject, a literal, may be published to by the configured rules alone.
func (p *Permissions) MayPublish(subject string) bool {
	if p == nil {
		return true
	}
	hits := func(r rule) bool { return Matches(r.filter, subject) }
	return (!p.pubAllowSet || slices.ContainsFunc(p.pubAllow, hits)) && !slices.ContainsFunc(p.pubDeny, hits)
}

// MaySubscribe reports whether filter may be subscribed to, in queue if that is not empty. A rule with a queue concerns
// that queue alone; where there is one for the subject, it decides about queue subscriptions.
func (p *Permissions) MaySubscribe(filter, queue string) bool {
	if p == nil {
		return true
	}
	if p.subAllowSet {
		plain, queued, named := hits(p.subAllow, filter, queue)
		if queue != "" && named {
			plain = queued
		}
		if !plain {
			return false
		}
	}
	plain, queued, _ := hits(p.subDeny, filter, queue)
	return !plain && (queue == "" || !queued)
}

// MayReceive reports whether a message that shows subject and was sent to target may be delivered to a subscription in
// queue (empty: none). It is asked for clients with a subscription that NeedsFilter.
func (p *Permissions) MayReceive(subject, target, queue string) bool {
	if p.subAllowSet {
		plain, queued, _ := hits(p.subAllow, target, queue)
		if !plain && !queued {
			return false
		}
	}
	plain, queued, _ := hits(p.subDeny, subject, queue)
	return !plain && (queue == "" || !queued)
}

// NeedsFilter reports whether a permitted subscription may still meet messages that MayReceive refuses: those of a deny
// rule that is narrower, and those of a subscription to foo.> that is permitted by foo.*, as in NATS.
func (p *Permissions) NeedsFilter(filter, queue string) bool {
	if p == nil || (queue == "" && !hasWildcard(filter)) {
		return false
	}
	if slices.ContainsFunc(p.subDeny, func(r rule) bool { return subjects.Overlap(r.filter, filter) }) {
		return true
	}
	return p.subAllowSet && !slices.ContainsFunc(p.subAllow, func(r rule) bool {
		return (r.queue == "" || r.names(queue)) && subjects.SubsetOf(filter, r.filter)
	})
}

// hits reports whether any rule without a queue covers subject (plain), any rule with a queue covers subject and queue
// (queued), and any rule with a queue covers subject (named).
func hits(list []rule, subject, queue string) (plain, queued, named bool) {
	for _, r := range list {
		if !Matches(r.filter, subject) {
			continue
		}
		if r.queue == "" {
			plain = true
			continue
		}
		named = true
		queued = queued || r.names(queue)
	}
	return plain, queued, named
}

// names reports whether the rule's queue covers queue.
func (r rule) names(queue string) bool {
	covers := func() bool { return Matches(r.queue, queue) && subjects.SubsetOf(queue, r.queue) }
	return queue != "" && (r.queue == queue || (hasWildcard(r.queue) && covers()))
}

func hasWildcard(filter string) bool {
	for token := range strings.SplitSeq(filter, ".") {
		if token == "*" || token == ">" {
			return true
		}
	}
	return false
}

// Matches reports whether filter covers subject, whose own wildcards count as ordinary tokens. A subject with an empty
// token is covered by nothing.
func Matches(filter, subject string) bool {
	return subjects.Match(filter, subject) && subjects.ValidPublish(subject)
}
