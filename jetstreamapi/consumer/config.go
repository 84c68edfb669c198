package consumer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Limits are what the account and the server allow a consumer; 0 or -1: no limit.
type Limits struct {
	MaxAckPending     int
	MaxRequestBatch   int
	InactiveThreshold time.Duration
}

// flowControlHeartbeat is the one heartbeat NATS permits with ack_policy flow_control.
const flowControlHeartbeat = time.Second

var validGroupName = regexp.MustCompile(`^[a-zA-Z0-9/_=-]{1,16}$`)

// Complete fills the defaults of a configuration and checks it by nats-server's rules, order and texts; strict
// refuses what it would have to change. What it cannot see is left to the caller: the other consumers of the stream
// (names in use, work-queue overlaps, the number of consumers).
//
//nolint:revive // strict is a field of the request
func Complete(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits, strict bool) *server.ApiError {
	r := lenient
	if strict {
		r = pedantic
	}
	if err := completeNumbers(cfg, r); err != nil {
		return err
	}
	if err := completeDefaults(cfg, stream, limits, r); err != nil {
		return err
	}
	return check(cfg, stream, limits)
}

// rigour says what to do about values that NATS would silently change.
type rigour uint8

const (
	lenient  rigour = iota // change them
	pedantic               // refuse them
)

// completeNumbers replaces negative numbers by the value that means "not set".
func completeNumbers(cfg *server.ConsumerConfig, r rigour) *server.ApiError {
	if cfg.MaxDeliver == 0 || cfg.MaxDeliver < -1 {
		if r == pedantic && cfg.MaxDeliver < -1 {
			return server.NewJSPedanticError(errors.New("max_deliver must be set to -1"))
		}
		cfg.MaxDeliver = -1
	}
	if cfg.MaxWaiting < 0 {
		if r == pedantic {
			return server.NewJSPedanticError(errors.New("max_waiting must not be negative"))
		}
		cfg.MaxWaiting = 0
	}
	if cfg.MaxAckPending < -1 {
		if r == pedantic {
			return server.NewJSPedanticError(errors.New("max_ack_pending must be set to -1"))
		}
		cfg.MaxAckPending = -1
	}
	for _, f := range []struct {
		name     string
		negative bool
		reset    func()
	}{
		{"max_batch", cfg.MaxRequestBatch < 0, func() { cfg.MaxRequestBatch = 0 }},
		{"max_expires", cfg.MaxRequestExpires < 0, func() { cfg.MaxRequestExpires = 0 }},
		{"max_bytes", cfg.MaxRequestMaxBytes < 0, func() { cfg.MaxRequestMaxBytes = 0 }},
		{"idle_heartbeat", cfg.Heartbeat < 0, func() { cfg.Heartbeat = 0 }},
		{"inactive_threshold", cfg.InactiveThreshold < 0, func() { cfg.InactiveThreshold = 0 }},
		{"priority_timeout", cfg.PinnedTTL < 0, func() { cfg.PinnedTTL = 0 }},
	} {
		if f.negative && r == pedantic {
			return server.NewJSPedanticError(fmt.Errorf("%s must not be negative", f.name))
		}
		if f.negative {
			f.reset()
		}
	}
	return nil
}

// completeDefaults fills in what was not set.
func completeDefaults(
	cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits, r rigour,
) *server.ApiError {
	if cfg.DeliverSubject == "" && cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = server.JSWaitQueueDefaultMax
	}
	if cfg.AckWait == 0 && (cfg.AckPolicy == server.AckExplicit || cfg.AckPolicy == server.AckAll) {
		cfg.AckWait = server.JsAckWaitDefault
	}
	if len(cfg.BackOff) > 0 {
		if r == pedantic && cfg.AckWait != cfg.BackOff[0] {
			return server.NewJSPedanticError(errors.New("first backoff value has to equal batch AckWait"))
		}
		cfg.AckWait = cfg.BackOff[0]
	}
	if err := completeFromLimits(cfg, stream, limits, r); err != nil {
		return err
	}
	if cfg.PriorityPolicy == server.PriorityPinnedClient && cfg.PinnedTTL == 0 {
		cfg.PinnedTTL = server.JsDefaultPinnedTTL
	}
	if cfg.AckPolicy == server.AckFlowControl && r != pedantic {
		cfg.FlowControl = true
		cfg.Heartbeat = flowControlHeartbeat
	}
	return nil
}

func completeFromLimits(
	cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits, r rigour,
) *server.ApiError {
	if cfg.MaxAckPending == 0 {
		if r == pedantic && stream.ConsumerLimits.MaxAckPending > 0 {
			return server.NewJSPedanticError(
				errors.New("max_ack_pending must be set if it's configured in stream limits"))
		}
		cfg.MaxAckPending = stream.ConsumerLimits.MaxAckPending
	}
	if cfg.InactiveThreshold == 0 {
		if r == pedantic && stream.ConsumerLimits.InactiveThreshold > 0 {
			return server.NewJSPedanticError(
				errors.New("inactive_threshold must be set if it's configured in stream limits"))
		}
		cfg.InactiveThreshold = stream.ConsumerLimits.InactiveThreshold
	}
	if cfg.MaxAckPending == 0 && cfg.AckPolicy != server.AckNone {
		cfg.MaxAckPending = server.JsDefaultMaxAckPending
		if limits.MaxAckPending > 0 {
			cfg.MaxAckPending = min(cfg.MaxAckPending, limits.MaxAckPending)
		}
	}
	if cfg.DeliverSubject == "" && cfg.MaxRequestBatch == 0 && limits.MaxRequestBatch > 0 {
		if r == pedantic {
			return server.NewJSPedanticError(
				errors.New("max_request_batch must be set if it's JetStream limits are set"))
		}
		cfg.MaxRequestBatch = limits.MaxRequestBatch
	}
	return nil
}

// check runs the checks in nats-server's order: where several things are wrong, clients see the same error.
func check(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits) *server.ApiError {
	for _, part := range []func(*server.ConsumerConfig, *server.StreamConfig, Limits) *server.ApiError{
		checkNames, checkReplicas, checkPolicies, checkFlowControlPolicy, checkDescription,
		checkMode, checkLimits, checkDirect, checkFilters, checkStart, checkSampling, checkRest, checkPriority,
		checkExtensions,
	} {
		if err := part(cfg, stream, limits); err != nil {
			return err
		}
	}
	return nil
}

func validAssetName(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\r\n\f.*>\\/")
}

func checkNames(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.Name != "" && !validAssetName(cfg.Name) {
		return server.NewJSStreamInvalidConfigError(
			errors.New(`consumer name can not contain '.', '*', '>', '\', '/'`))
	}
	if cfg.Durable != "" && !validAssetName(cfg.Durable) {
		return server.NewJSStreamInvalidConfigError(
			errors.New(`consumer durable name can not contain '.', '*', '>', '\', '/'`))
	}
	return nil
}

func checkReplicas(cfg *server.ConsumerConfig, stream *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.Replicas > 0 && cfg.Replicas > stream.Replicas {
		return server.NewJSConsumerReplicasExceedsStreamError()
	}
	if cfg.Replicas < 0 {
		return server.NewJSReplicasCountCannotBeNegativeError()
	}
	if stream.Retention != server.LimitsPolicy && cfg.Replicas != 0 && cfg.Replicas != stream.Replicas {
		return server.NewJSConsumerReplicasShouldMatchStreamError()
	}
	return nil
}

func checkPolicies(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if _, err := cfg.AckPolicy.MarshalJSON(); err != nil {
		return server.NewJSConsumerAckPolicyInvalidError()
	}
	if _, err := cfg.ReplayPolicy.MarshalJSON(); err != nil {
		return server.NewJSConsumerReplayPolicyInvalidError()
	}
	for _, b := range cfg.BackOff {
		if b < 0 {
			return server.NewJSConsumerBackOffNegativeError()
		}
	}
	if cfg.AckWait < 0 {
		return server.NewJSConsumerAckWaitNegativeError()
	}
	return nil
}

func checkFlowControlPolicy(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.AckPolicy != server.AckFlowControl {
		return nil
	}
	switch {
	case cfg.DeliverSubject == "":
		return server.NewJSConsumerAckFCRequiresPushError()
	case !cfg.FlowControl:
		return server.NewJSConsumerAckFCRequiresFCError()
	case cfg.Heartbeat != flowControlHeartbeat:
		return server.NewJSStreamInvalidConfigError(errors.New("flow control ack policy heartbeat needs to be 1s"))
	case cfg.MaxAckPending <= 0:
		return server.NewJSConsumerAckFCRequiresMaxAckPendingError()
	case cfg.AckWait != 0 || len(cfg.BackOff) > 0:
		return server.NewJSConsumerAckFCRequiresNoAckWaitError()
	case cfg.MaxDeliver > 0:
		return server.NewJSConsumerAckFCRequiresNoMaxDeliverError()
	}
	return nil
}

func checkDescription(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if n := len(cfg.BackOff); n > 0 && cfg.MaxDeliver != -1 && n > cfg.MaxDeliver {
		return server.NewJSConsumerMaxDeliverBackoffError()
	}
	if len(cfg.Description) > server.JSMaxDescriptionLen {
		return server.NewJSConsumerDescriptionTooLongError(server.JSMaxDescriptionLen)
	}
	return nil
}

func checkMode(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits) *server.ApiError {
	if cfg.DeliverSubject == "" {
		return checkPullMode(cfg, stream, limits)
	}
	switch {
	case strings.ContainsAny(cfg.DeliverSubject, "*>") && hasWildcard(cfg.DeliverSubject):
		return server.NewJSConsumerDeliverToWildcardsError()
	case !server.IsValidSubject(cfg.DeliverSubject):
		return server.NewJSConsumerInvalidDeliverSubjectError()
	case formsCycle(stream, cfg.DeliverSubject):
		return server.NewJSConsumerDeliverCycleError()
	case cfg.MaxWaiting != 0:
		return server.NewJSConsumerPushMaxWaitingError()
	case cfg.MaxAckPending > 0 && cfg.AckPolicy == server.AckNone:
		return server.NewJSConsumerMaxPendingAckPolicyRequiredError()
	case cfg.Heartbeat > 0 && cfg.Heartbeat < 100*time.Millisecond:
		return server.NewJSConsumerSmallHeartbeatError()
	}
	return nil
}

func checkPullMode(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits) *server.ApiError {
	switch {
	case cfg.AckPolicy == server.AckNone && stream.Retention == server.WorkQueuePolicy && !Peeks(cfg):
		return server.NewJSConsumerPullRequiresAckError()
	case cfg.RateLimit > 0:
		return server.NewJSConsumerPullWithRateLimitError()
	case cfg.MaxWaiting < 0:
		return server.NewJSConsumerMaxWaitingNegativeError()
	case cfg.Heartbeat > 0:
		return server.NewJSConsumerHBRequiresPushError()
	case cfg.FlowControl:
		return server.NewJSConsumerFCRequiresPushError()
	case cfg.MaxRequestBatch < 0:
		return server.NewJSConsumerMaxRequestBatchNegativeError()
	case cfg.MaxRequestExpires != 0 && cfg.MaxRequestExpires < time.Millisecond:
		return server.NewJSConsumerMaxRequestExpiresTooSmallError()
	case limits.MaxRequestBatch > 0 && cfg.MaxRequestBatch > limits.MaxRequestBatch:
		return server.NewJSConsumerMaxRequestBatchExceededError(limits.MaxRequestBatch)
	}
	return nil
}

func checkLimits(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits) *server.ApiError {
	if n := limits.MaxAckPending; n > 0 && cfg.MaxAckPending > n {
		return server.NewJSConsumerMaxPendingAckExcessError(n)
	}
	if n := stream.ConsumerLimits.MaxAckPending; n > 0 && cfg.MaxAckPending > n {
		return server.NewJSConsumerMaxPendingAckExcessError(n)
	}
	if d := stream.ConsumerLimits.InactiveThreshold; d > 0 && cfg.InactiveThreshold > d {
		return server.NewJSConsumerInactiveThresholdExcessError(d)
	}
	if d := limits.InactiveThreshold; d > 0 && cfg.InactiveThreshold > d {
		return server.NewJSConsumerInactiveThresholdExcessError(d)
	}
	return nil
}

func checkDirect(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	switch {
	case cfg.Direct && cfg.DeliverSubject == "":
		return server.NewJSConsumerDirectRequiresPushError()
	case cfg.Direct && cfg.Durable != "":
		return server.NewJSConsumerDirectRequiresEphemeralError()
	}
	return nil
}

func checkFilters(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.FilterSubject != "" && len(cfg.FilterSubjects) > 0 {
		return server.NewJSConsumerDuplicateFilterSubjectsError()
	}
	if cfg.FilterSubject != "" && !server.IsValidSubject(cfg.FilterSubject) {
		return server.NewJSStreamInvalidConfigError(server.ErrBadSubject)
	}
	if slices.Contains(cfg.FilterSubjects, "") {
		return server.NewJSConsumerEmptyFilterError()
	}
	filters := filterSubjects(cfg)
	for i, f := range filters {
		if !server.IsValidSubject(f) {
			return server.NewJSStreamInvalidConfigError(server.ErrBadSubject)
		}
		for j, g := range filters {
			if i != j && server.SubjectMatchesFilter(f, g) {
				return server.NewJSConsumerOverlappingSubjectFiltersError()
			}
		}
	}
	return nil
}

func checkStart(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	set := func(policy, what string) *server.ApiError {
		return server.NewJSConsumerInvalidPolicyError(fmt.Errorf(
			"consumer delivery policy is deliver %s, but optional start %s is also set", policy, what))
	}
	unset := func(policy, what string) *server.ApiError {
		return server.NewJSConsumerInvalidPolicyError(fmt.Errorf(
			"consumer delivery policy is deliver %s, but optional %s is not set", policy, what))
	}
	switch p := cfg.DeliverPolicy; p {
	case server.DeliverByStartSequence:
		if cfg.OptStartSeq == 0 {
			return unset("by start sequence", "start sequence")
		}
		if cfg.OptStartTime != nil {
			return set("by start sequence", "time")
		}
	case server.DeliverByStartTime:
		if cfg.OptStartTime == nil {
			return unset("by start time", "start time")
		}
		if cfg.OptStartSeq != 0 {
			return set("by start time", "start sequence")
		}
	case server.DeliverAll, server.DeliverLast, server.DeliverNew, server.DeliverLastPerSubject:
		name := strings.ReplaceAll(p.String(), "_", " ")
		if cfg.OptStartSeq > 0 {
			return set(name, "sequence")
		}
		if cfg.OptStartTime != nil {
			return set(name, "time")
		}
		if p == server.DeliverLastPerSubject && cfg.FilterSubject == "" && len(cfg.FilterSubjects) == 0 {
			return unset(name, "filter subject")
		}
	}
	return nil
}

func checkSampling(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.SampleFrequency == "" {
		return nil
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(cfg.SampleFrequency, "%")); err != nil || n < 0 {
		return server.NewJSConsumerInvalidSamplingError(err)
	}
	return nil
}

func checkRest(cfg *server.ConsumerConfig, _ *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.FlowControl && cfg.Heartbeat == 0 {
		return server.NewJSConsumerWithFlowControlNeedsHeartbeatsError()
	}
	if cfg.Durable != "" && cfg.Name != "" && cfg.Name != cfg.Durable {
		return server.NewJSConsumerCreateDurableAndNameMismatchError()
	}
	size := 0
	for k, v := range cfg.Metadata {
		size += len(k) + len(v)
	}
	if size > server.JSMaxMetadataLen {
		return server.NewJSConsumerMetadataLengthError(fmt.Sprintf("%dKB", server.JSMaxMetadataLen/1024))
	}
	return nil
}

func checkPriority(cfg *server.ConsumerConfig, stream *server.StreamConfig, _ Limits) *server.ApiError {
	if cfg.PriorityPolicy == server.PriorityNone {
		if len(cfg.PriorityGroups) > 0 {
			return server.NewJSConsumerPriorityGroupWithPolicyNoneError()
		}
		if cfg.PinnedTTL > 0 {
			return server.NewJSConsumerPinnedTTLWithoutPriorityPolicyNoneError()
		}
	} else if err := checkGroups(cfg); err != nil {
		return err
	}
	if stream.Placement != nil && stream.Placement.Preferred != "" {
		return server.NewJSStreamInvalidConfigError(errors.New("preferred server not permitted in placement"))
	}
	return nil
}

func checkGroups(cfg *server.ConsumerConfig) *server.ApiError {
	if cfg.DeliverSubject != "" {
		return server.NewJSConsumerPushWithPriorityGroupError()
	}
	if len(cfg.PriorityGroups) == 0 {
		return server.NewJSConsumerPriorityPolicyWithoutGroupError()
	}
	for _, g := range cfg.PriorityGroups {
		if g == "" {
			return server.NewJSConsumerEmptyGroupNameError()
		}
		if !validGroupName.MatchString(g) {
			return server.NewJSConsumerInvalidGroupNameError()
		}
	}
	return nil
}

// formsCycle reports whether a delivery would be stored by its own stream again.
func formsCycle(stream *server.StreamConfig, deliver string) bool {
	for _, s := range stream.Subjects {
		if server.SubjectMatchesFilter(deliver, s) {
			return true
		}
	}
	return false
}

// filterSubjects returns the filters of a configuration as one list; none: everything.
func filterSubjects(cfg *server.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return append(slices.Clip(cfg.FilterSubjects), cfg.FilterSubject)
	}
	return cfg.FilterSubjects
}

func hasWildcard(subject string) bool {
	for t := range strings.SplitSeq(subject, ".") {
		if t == "*" || t == ">" {
			return true
		}
	}
	return false
}
