package flip

// Step is a point on the way of a move. Whatever ends there, the gateway or the servers, leaves one authority, and what
// is left to be done is done by whoever moves the stream again, or by the restart.
type Step string

// The steps of a flip. Up to FlipVerified the servers have the say, from FlipRecorded on the gateway has.
const (
	FlipIntent      Step = "flip-intent"      // it is recorded
	FlipHeld        Step = "flip-held"        // the fence is up
	FlipDrained     Step = "flip-drained"     // no publish is without its PubAck
	FlipTransferred Step = "flip-transferred" // consumers and message ids are here
	FlipVerified    Step = "flip-verified"    // nothing has moved
	FlipRecorded    Step = "flip-recorded"
	FlipPromoted    Step = "flip-promoted" // the copy is the authority
	FlipReleased    Step = "flip-released" // the fence is down
)

// The steps of a rollback. Up to RollbackEqual the gateway has the say, from RollbackRecorded on the servers have.
const (
	RollbackNear     Step = "rollback-near" // the servers have everything, before the fence
	RollbackIntent   Step = "rollback-intent"
	RollbackHeld     Step = "rollback-held"
	RollbackStopped  Step = "rollback-stopped" // the stream here stands still
	RollbackReached  Step = "rollback-reached" // the servers have all messages
	RollbackSettled  Step = "rollback-settled" // their consumers are where those here are
	RollbackEqual    Step = "rollback-equal"   // both sides were compared
	RollbackRecorded Step = "rollback-recorded"
	RollbackReleased Step = "rollback-released"
)

// Steps are all of them, in their order.
func Steps() []Step {
	return []Step{
		FlipIntent, FlipHeld, FlipDrained, FlipTransferred, FlipVerified, FlipRecorded, FlipPromoted, FlipReleased,
		RollbackNear, RollbackIntent, RollbackHeld, RollbackStopped, RollbackReached, RollbackSettled, RollbackEqual,
		RollbackRecorded, RollbackReleased,
	}
}

func (e *Engine) step(s Step) {
	if f := e.o.Step; f != nil {
		f(s)
	}
}
