package face

import (
	"context"
	"errors"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Errors of an Engine that have a status of their own.
var (
	// ErrUnknown says that there is no such stream, drill or move: 404.
	ErrUnknown = errors.New("not found")
	// ErrRefused says that it may not be done now, and why: 409. Nothing has changed.
	ErrRefused = errors.New("refused")
	// ErrNotEnough is ErrRefused where no gate fails, and there is too little evidence yet.
	ErrNotEnough error = notEnoughError{}
	// ErrUnsupported says that this gateway cannot do it: 501.
	ErrUnsupported = errors.New("not supported")
)

type notEnoughError struct{}

func (notEnoughError) Error() string        { return ErrRefused.Error() }
func (notEnoughError) Is(target error) bool { return target == ErrRefused }

// Engine is what the API shows and does. Safe for concurrent use. Errors that wrap ErrUnknown, ErrRefused or
// ErrUnsupported are answered as such, others with 500.
type Engine interface {
	// Status is complete but for Gates of the streams, which are Gates's.
	Status(ctx context.Context) (*Status, error)
	// Inventory looks at what the servers hold.
	Inventory(ctx context.Context) (*Inventory, error)
	Gates(ctx context.Context, scope cutover.Scope, purpose gate.Purpose) (gate.Report, error)
	// Parity is the comparison, nil if nothing is compared in this mode.
	Parity() *parity.Engine
	// Events returns events with larger ids, ascending, at most limit. With wait it returns as soon as there are some,
	// or with none when ctx ends.
	Events(ctx context.Context, after uint64, limit int, wait bool) ([]Event, error)

	// Plan is what a move would do.
	Plan(ctx context.Context, r PlanRequest) (*Plan, error)
	// Flip moves a stream, or begins to wait (State "postponed").
	Flip(ctx context.Context, r FlipRequest) (*Move, error)
	// Release goes on with a flip that is postponed, or aborts it, and returns what it came to.
	Release(ctx context.Context, scope cutover.Scope, abort bool, by string) (*Move, error)
	// Accept ends the observation behind a flip: it is not taken back by itself any more.
	Accept(ctx context.Context, scope cutover.Scope, by Actor) error
	Rollback(ctx context.Context, r RollbackRequest) (*Move, error)
	// Approve notes that somebody who has the approvers' token approves of giving up the way back.
	Approve(ctx context.Context, scope cutover.Scope, by Actor) error
	// Complete gives up the way back.
	Complete(ctx context.Context, r CompleteRequest) error
	// Shadow starts, stops or resets the copy of a stream.
	Shadow(ctx context.Context, r ShadowRequest) error
	// Canary serves a consumer from here, or ends that; of all consumers of a stream that can be, or none, without one.
	Canary(ctx context.Context, r CanaryRequest) ([]CanaryResult, error)
	// Throttle holds back what is behind of one stream, or of all: for a reason, or above a load.
	Throttle(ctx context.Context, r ThrottleRequest) error
	// Pause stops copying one stream, or all, for a reason, or ends that.
	Pause(ctx context.Context, r PauseRequest) error
	// Drill starts an exercise. One with a load (drill.Loaded) waits for it at step "ready".
	Drill(ctx context.Context, r DrillRequest) (*Drill, error)
	// DrillFault brings the fault of an exercise about, whose load runs.
	DrillFault(ctx context.Context, r DrillFaultRequest) (*Drill, error)
	// DrillReport takes the account of an exercise's load: it ends with what both sides have come to.
	DrillReport(ctx context.Context, r DrillReportRequest) (*Drill, error)
	// Drills returns the exercises, oldest first, as they count now.
	Drills() []Drill
}

// Actor is who asked for a change, and why. It is kept in the events.
type Actor struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// FlipRequest asks to make the gateway the authority of a stream.
type FlipRequest struct {
	Actor
	Scope    cutover.Scope     `json:"scope"`
	Expect   string            `json:"expect,omitempty"` // digest of the plan that was agreed to
	MaxFence time.Duration     `json:"max_fence,omitempty"`
	Retries  int               `json:"retries,omitempty"`
	Postpone bool              `json:"postpone,omitempty"` // everything but the fence: it waits for Release
	Test     bool              `json:"test,omitempty"`     // and back at once
	Force    map[string]string `json:"force,omitempty"`    // gates to do without, with reasons
	// PostponeFile is a file on the gateway's machine: while it is there, the flip waits as with Postpone.
	PostponeFile string `json:"postpone_file,omitempty"`
	// HoldWindow is for how long it may wait, and be tried again when its fence was too short; 0: an hour to wait, and
	// Retries.
	HoldWindow time.Duration `json:"hold_window,omitempty"`
	// Observe is for how long it is observed, and taken back by itself when something fails; nil: as configured
	// (bus.observe), 0: not at all.
	Observe *time.Duration `json:"observe,omitempty"`
	// NoReverse: the servers are not kept equal, so a rollback loses what is published here. Understood says that this
	// is meant.
	NoReverse  bool `json:"no_reverse_shadow,omitempty"`
	Understood bool `json:"understood,omitempty"`
}

// PlanRequest asks what a move would do.
type PlanRequest struct {
	Scope     cutover.Scope
	To        string         // ehdb or nats
	NoReverse bool           // as in FlipRequest
	Observe   *time.Duration // likewise
	Emergency bool           // as in RollbackRequest
}

// PauseRequest asks to stop copying, or to go on.
type PauseRequest struct {
	Actor
	Scope cutover.Scope `json:"scope"` // none: all streams
	End   bool          `json:"-"`     // go on
}

// ThrottleRequest asks to hold back what is behind, of one stream or of all. With limits it sets those, and Reason is
// why; else Reason is why it is held back, and without one, or with Off, it goes on.
type ThrottleRequest struct {
	Actor
	Limits
	Scope cutover.Scope `json:"scope"`         // none: all streams
	Off   bool          `json:"off,omitempty"` // it goes on, and Reason is why
}

// RollbackRequest asks to make the servers the authority of a stream again.
type RollbackRequest struct {
	Actor
	Scope cutover.Scope `json:"scope"`
	// Emergency does not wait for what the servers lack: at most MaxLoss messages may be lost, which is what the card
	// said when it was decided.
	Emergency bool          `json:"emergency,omitempty"`
	MaxLoss   uint64        `json:"max_loss,omitempty"`
	MaxFence  time.Duration `json:"max_fence,omitempty"`
}

// CompleteRequest asks to give up the way back.
type CompleteRequest struct {
	Actor
	Scope      cutover.Scope `json:"scope"`
	Understood bool          `json:"understood"`
	// Approver is a second person, by name: where there is an approvers' token, Approve says it. Credentials are what
	// is to be retired on the servers then, in words. Both are kept in the events.
	Approver    string            `json:"approved_by,omitempty"`
	Credentials string            `json:"credentials,omitempty"`
	Force       map[string]string `json:"force,omitempty"` // gates to do without, with reasons
}

// ShadowRequest asks for a change of a stream's copy.
type ShadowRequest struct {
	Actor
	Scope  cutover.Scope `json:"scope"`
	Action string        `json:"action"` // start, stop, reset, backfill
	// Rate bounds what is copied while the copy is behind, in bytes a second, until the gateway ends; 0: as configured,
	// with backfill no bound.
	Rate int64 `json:"rate,omitempty"`
	// Limits are set for the stream, but with stop.
	Limits
}

// CanaryRequest asks for a consumer to be served from here.
type CanaryRequest struct {
	Actor
	Scope    cutover.Scope `json:"scope"`
	Consumer string        `json:"consumer,omitempty"` // none: all of the stream that can be
	Remove   bool          `json:"remove,omitempty"`
	Abort    []string      `json:"abort_on,omitempty"` // gates that end it
}

// CanaryResult is what became of a consumer.
type CanaryResult struct {
	Consumer string `json:"consumer"`
	Served   bool   `json:"served"`        // from here
	Why      string `json:"why,omitempty"` // or why not
}

// DrillRequest asks for an exercise.
type DrillRequest struct {
	Actor
	Scope cutover.Scope `json:"scope"`
	Kind  string        `json:"kind"`
	Load  int           `json:"load,omitempty"` // messages a second
}

// DrillFaultRequest asks for the fault of an exercise.
type DrillFaultRequest struct {
	Actor
	ID uint64 `json:"id"`
	// Seconds is how long a partition lasts; 0: 5.
	Seconds float64 `json:"seconds,omitempty"`
}

// DrillReportRequest says what an exercise's load has come to.
type DrillReportRequest struct {
	Actor
	ID      uint64        `json:"id"`
	Account drill.Account `json:"account"`
}
