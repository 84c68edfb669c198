package gate

import (
	"maps"
	"slices"
	"strings"
)

// How much has to be compared in production, and for how long.
const (
	enoughRecords = 10_000
	enoughHours   = 24
)

// Names of facts. A yes is 1, a no 0.
const (
	ControlsOKTicks   = "controls.ok_ticks"               // how many times in a row all controls were as expected
	Accounted         = "parity.accounted"                // yes: the states add up to what was examined
	Examined          = "parity.examined"                 // sequences that were compared
	OrganicHours      = "parity.organic_hours"            // how long traffic has been compared
	Diverged          = "parity.diverged"                 // sequences in a state that says that the sides differ
	DigestEqual       = "parity.digest_equal"             // yes: the digests of both sides are equal
	ComparedAll       = "parity.complete"                 // yes: all of it, as it is configured now
	NotCompared       = "parity.not_comparable"           // sequences, but for waived ones
	Stranded          = "delivery.stranded"               // messages that a consumer moved past and was never offered
	Unbalanced        = "delivery.unbalanced"             // consumers whose figures do not add up
	Unseen            = "delivery.unseen"                 // consumers of which nobody knows what they were offered
	LagOfWindow       = "shadow.lag_of_window"            // the copy's lag, 99th percentile, as a part of the window
	LagOfFence        = "shadow.lag_of_fence"             // the same as a part of the fence's budget
	QueueConserved    = "queue.conserved"                 // yes: what went into the queue came out or is in it
	QueueDropped      = "queue.dropped"                   // records dropped
	QueueInline       = "queue.inline"                    // records that took the third rung
	APIParity         = "api.parity"                      // share of API answers with the same shape
	APIUnknown        = "api.unknown_subjects"            // API subjects in use that are not known
	Unsupported       = "features.unsupported"            // features in use that are not supported
	BypassConnections = "bypass.connections"              // connections of the account that go around the gateway
	BypassHoles       = "bypass.holes"                    // records of a day that came another way
	ProxyRequired     = "bypass.proxy_required"           // yes: the servers refuse other clients
	Inexact           = "consumers.inexact"               // durable consumers whose state is not known to be exact
	Silent            = "consumers.silent"                // with work, and nothing delivered for long
	PublishP50        = "latency.publish_p50_ratio"       // publish to ack, median, EHDB over NATS, unsaturated
	PublishP99        = "latency.publish_p99_ratio"       // the same, 99th percentile
	DeliverP99        = "latency.deliver_p99_ratio"       // publish to delivery, 99th percentile
	DrillWriterKill   = "drill.restart_writer"            // yes: passed
	DrillGatewayKill  = "drill.kill_gateway"              // yes: passed
	DrillStepdown     = "drill.nats_stepdown"             // yes: passed
	DrillPartition    = "drill.partition"                 // yes: passed
	DrillFlipBack     = "drill.flip_and_back"             // yes: passed
	AckAfterSync      = "durability.ack_after_sync"       // yes: acknowledged means synced
	FailureDomains    = "durability.shared_domains"       // replicas that share a failure domain
	UnreplicatedAge   = "durability.unreplicated_seconds" // age of the oldest record that is on one disk only
	DiskFree          = "durability.disk_free_ratio"      // free disk over what retention may need
	OutOfOrder        = "storage.out_of_order_appends"    // appends out of order
	AppendFailed      = "storage.append_failed"           // appends that failed
	DedupeConflict    = "storage.dedupe_conflict"         // message ids that two records have
	DedupMissing      = "dedup.missing"                   // message ids of the window that the copy does not know
	ConfigDiffers     = "config.differences"              // differences between the configurations of both sides
	ConfigQuiet       = "config.quiet_seconds"            // how long nobody has changed it
	Unwatched         = "autoscale.unwatched"             // autoscalers that are configured and do not watch
	Regressions       = "authority.regressions"           // times that a last sequence went back
	Unhealthy         = "authority.unhealthy"             // without leader, replicas that lag, consumers ahead
	KnownIssues       = "authority.known_issues"          // known defects of the servers' version
	ReverseProven     = "reverse.proven"                  // yes: the way back was tried on a scratch stream
	MayPublish        = "reverse.may_publish"             // yes: the gateway may publish to the servers
	Headroom          = "reverse.headroom"                // the servers' free storage over what the way back may need
	Gateways          = "gateways.count"                  // gateways that take part
	ClockSkew         = "gateways.clock_skew_seconds"     // between the gateway and the servers
	FenceMemory       = "gateways.fence_memory"           // memory for held messages over what a fence may hold
	PlanDigest        = "plan.digest_matches"             // yes: the plan is the one that was approved
	ChangeWindow      = "plan.window_open"                // yes: changes are allowed now
	BakeDays          = "bake.days"                       // days with all traffic here
	BakeRestarts      = "bake.restarts"                   // restarts survived in that time
	ReverseLag        = "reverse.lag"                     // records that the servers lack
	Credentials       = "bake.credentials_listed"         // yes: the credentials to retire are listed
	SecondApprover    = "bake.second_approver"            // yes: a second person approved
)

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

// wayBack is the gate about the way back.
const wayBack = "G21"

// live is the age of what is measured all the time.
var live = by{30, 30}

// zero wants none of something, and yes that it is so.
func zero(fact string, age by) check { return check{fact: fact, op: is, limit: same(0), age: age} }
func yes(fact string, age by) check  { return check{fact: fact, op: is, limit: same(1), age: age} }

// passed wants a drill that passed lately.
func passed(fact string, age float64) check {
	return check{fact: fact, op: is, limit: same(1), age: same(age), expires: true}
}

// table are the gates. Those that cannot be forced are about losing, repeating or stranding messages, and about the way
// back.
var table = []gate{
	{id: "G1", title: "controls of the comparison detected", checks: []check{
		{fact: ControlsOKTicks, op: atLeast, limit: same(2), age: live},
	}},
	{id: "G2", title: "enough was examined, and it adds up", parity: true, checks: []check{
		yes(Accounted, live),
		{fact: Examined, op: atLeast, limit: by{enoughRecords, 100}, age: live, grows: true},
		{fact: OrganicHours, op: atLeast, limit: by{enoughHours, 0}, age: live, grows: true},
	}},
	{id: "G3", title: "storage parity", parity: true, checks: []check{
		zero(Diverged, live), yes(DigestEqual, live),
		{fact: ComparedAll, op: is, limit: same(1), age: live, grows: true},
	}},
	{id: "G4", title: "delivery parity: nothing stranded, figures add up", parity: true, checks: []check{
		zero(Stranded, by{60, 60}), zero(Unbalanced, by{60, 60}), zero(Unseen, by{60, 60}),
	}},
	{id: "G5", title: "everything can be compared", forceable: true, parity: true, checks: []check{
		zero(NotCompared, live),
	}},
	{id: "G6", title: "the copy keeps up, and its queue loses nothing", forceable: true, checks: []check{
		{fact: LagOfWindow, op: atMost, limit: by{0.1, 0.5}, age: live, n: by{100, 20}},
		{fact: LagOfFence, op: atMost, limit: by{0.5, 1}, age: live, n: by{100, 20}},
		yes(QueueConserved, live), zero(QueueDropped, live), zero(QueueInline, live),
	}},
	{id: "G7", title: "API answers alike, features supported", forceable: true, checks: []check{
		{fact: APIParity, op: atLeast, limit: by{0.99999, 0.99}, age: by{5 * minute, minute}},
		zero(APIUnknown, by{5 * minute, minute}), zero(Unsupported, by{5 * minute, minute}),
	}},
	{id: "G8", title: "nobody goes around the gateway", checks: []check{
		zero(BypassConnections, by{minute, minute}), zero(BypassHoles, by{minute, minute}),
		yes(ProxyRequired, by{5 * minute, minute}),
	}},
	{id: "G9", title: "the state of every durable consumer is exact", checks: []check{
		zero(Inexact, by{minute, minute}),
	}},
	{id: "G10", title: "every consumer with work is served", forceable: true, checks: []check{
		zero(Silent, by{minute, minute}),
	}},
	{id: "G11", title: "latency, unsaturated", forceable: true, checks: []check{
		{fact: PublishP50, op: atMost, limit: by{1.2, 20}, age: by{hour, 5 * minute}, n: by{1000, 20}},
		{fact: PublishP99, op: atMost, limit: by{1.2, 20}, age: by{hour, 5 * minute}, n: by{1000, 20}},
		{fact: DeliverP99, op: atMost, limit: by{1.2, 20}, age: by{hour, 5 * minute}, n: by{1000, 20}},
	}},
	{id: "G12", title: "drill: the writer is killed under load", forceable: true, checks: []check{
		passed(DrillWriterKill, day),
	}},
	{id: "G13", title: "drills: gateway killed, servers step down, partition", forceable: true, checks: []check{
		passed(DrillGatewayKill, 7*day), passed(DrillStepdown, 7*day), passed(DrillPartition, 7*day),
	}},
	{id: "G14", title: "drill: flip and back on a canary stream", forceable: true, checks: []check{
		passed(DrillFlipBack, day),
	}},
	{id: "G15", title: "durability", forceable: true, checks: []check{
		yes(AckAfterSync, by{5 * minute, minute}), zero(FailureDomains, by{5 * minute, minute}),
		{fact: UnreplicatedAge, op: atMost, limit: same(minute), age: live},
		{fact: DiskFree, op: atLeast, limit: by{2, 1}, age: by{5 * minute, minute}},
	}},
	{id: "G16", title: "the log's own alarms are there, and silent", forceable: true, checks: []check{
		zero(OutOfOrder, live), zero(AppendFailed, live), zero(DedupeConflict, live),
	}},
	{id: "G17", title: "deduplication window carried over", forceable: true, checks: []check{
		zero(DedupMissing, by{minute, minute}),
	}},
	{id: "G18", title: "configuration equal and quiet", forceable: true, checks: []check{
		zero(ConfigDiffers, by{minute, minute}),
		{fact: ConfigQuiet, op: atLeast, limit: by{10 * minute, 0}, age: by{minute, minute}, grows: true},
	}},
	{id: "G19", title: "autoscalers really watch", forceable: true, checks: []check{
		zero(Unwatched, by{2 * minute, minute}),
	}},
	{id: "G20", title: "the authority is healthy", forceable: true, checks: []check{
		zero(Regressions, by{minute, minute}), zero(Unhealthy, by{minute, minute}), zero(KnownIssues, by{day, day}),
	}},
	{id: wayBack, title: "the way back is proven", checks: []check{
		passed(ReverseProven, day), yes(MayPublish, by{hour, hour}),
		{fact: Headroom, op: atLeast, limit: same(1), age: by{5 * minute, minute}},
	}},
	{id: "G22", title: "one gateway, clocks, room for a fence", forceable: true, checks: []check{
		{fact: Gateways, op: is, limit: same(1), age: by{minute, minute}},
		{fact: ClockSkew, op: atMost, limit: by{0.1, 1}, age: by{5 * minute, minute}},
		{fact: FenceMemory, op: atLeast, limit: same(1), age: by{5 * minute, minute}},
	}},
	{id: "G23", title: "approved plan, open change window", forceable: true, checks: []check{
		yes(PlanDigest, by{minute, minute}), yes(ChangeWindow, by{minute, minute}),
	}},
	{id: "G24", title: "bake: the way back may be given up", complete: true, checks: []check{
		{fact: BakeDays, op: atLeast, limit: by{7, 0}, age: live, grows: true},
		{fact: BakeRestarts, op: atLeast, limit: by{1, 0}, age: live, grows: true},
		zero(ReverseLag, live), yes(Credentials, by{day, day}), yes(SecondApprover, by{hour, hour}),
	}},
}

// NoGate returns the first of some ids that is of no gate; empty: all are.
func NoGate(ids []string) string {
	for _, id := range ids {
		if !slices.ContainsFunc(table, func(g gate) bool { return g.id == id }) {
			return id
		}
	}
	return ""
}

// Unforceable says why these gates, with reasons, are not to be done without, and which may be; empty: they may.
// Whoever forces a gate that is none, or that cannot be forced, means something else than what happens.
func Unforceable(forced map[string]string) string {
	var may []string
	for i := range table {
		if table[i].forceable {
			may = append(may, table[i].id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(forced)) {
		var why string
		switch {
		case NoGate([]string{id}) != "":
			why = "there is no such gate"
		case !slices.Contains(may, id):
			why = "it is about losing, repeating or stranding messages, or about the way back"
		case strings.TrimSpace(forced[id]) == "":
			return id + ": give a reason, as in " + id + "=ticket"
		default:
			continue
		}
		return id + ": " + why + ": those that can be forced are " + strings.Join(may, ", ")
	}
	return ""
}

// FactNames returns all facts that the gates ask for, gate by gate.
func FactNames() []string {
	var out []string
	for _, g := range table {
		for _, c := range g.checks {
			out = append(out, c.fact)
		}
	}
	return out
}
