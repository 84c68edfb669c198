package pilot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// emergency is a verb: a rollback that does not wait for what the servers lack.
const emergency = "rollback --emergency"

// allowed is why a verb is none for a stream in its phase, and what is one there. The gates are not asked about it:
// they would say that something is not measured, for it is not measured in that phase.
func (p *Pilot) allowed(scope cutover.Scope, verb string) error {
	v, err := p.engine.View(scope)
	if err != nil {
		return unknown(err)
	}
	if why := misplaced(v.Phase, verb, scope.Flag()); why != "" {
		return fmt.Errorf("%w: %s is in phase %s: %s", face.ErrRefused, scope, v.Phase, why)
	}
	return nil
}

// misplaced is why a verb is none in a phase, and what can be done there; empty: it is one. A stream that is being
// moved is the engine's to refuse.
func misplaced(phase flip.Phase, verb, arg string) string {
	here := verb == "rollback" || verb == emergency || verb == "complete" // for streams that are served from here
	switch phase {
	case flip.PhaseShadow:
		if here {
			return "the servers have the say about it: ehdbctl flip " + arg + " makes the gateway its authority first"
		}
	case flip.PhaseEHDB:
		switch {
		case verb == "flip":
			return "the gateway has the say about it already: ehdbctl rollback " + arg + " gives it back, ehdbctl " +
				"complete " + arg + " gives up the way back"
		case !here:
			return "what is here is no copy, the gateway has the say: ehdbctl rollback " + arg + " gives it back first"
		}
	case flip.PhaseComplete:
		switch verb {
		case "flip", "complete":
			return "the gateway has the say about it, and the way back is given up: nothing is left to be done"
		case emergency:
			return ""
		case "rollback":
			return "the way back was given up: ehdbctl rollback --emergency " + arg + " takes it all the same, " +
				"without what the servers lack, and says what that loses"
		}
		return "what is here is no copy, the gateway has the say for good: there is nothing to stop"
	case flip.PhaseFlipping, flip.PhaseRollingBack:
	}
	return ""
}

func unprefixed(err error) string {
	return strings.TrimPrefix(err.Error(), face.ErrRefused.Error()+": ")
}

// lookBack bounds how long a plan waits for the servers.
const lookBack = 2 * time.Second

// planBack fills in what only plans of a rollback have: whether the servers are there, and what an emergency costs.
func (p *Pilot) planBack(ctx context.Context, r *face.PlanRequest, out *face.Plan) error {
	out.Gates = "not asked"
	verb := "rollback"
	if r.Emergency {
		verb = emergency
		out.Refusals = nil // it is not for what is not lossless that it would be refused
	}
	if err := p.allowed(r.Scope, verb); err != nil {
		out.Refusals = []string{unprefixed(err)}
		return nil
	}
	v, err := p.engine.View(r.Scope)
	if err != nil {
		return unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookBack)
	defer cancel()
	switch _, err := v.Upstream.Info(ctx); {
	case err == nil:
	case !errors.Is(err, cutover.ErrNoStream):
		out.Refusals = append(out.Refusals, "the servers cannot be asked, and a rollback, also an emergency's, is "+
			"refused without them: "+err.Error())
	case r.Emergency: // else it is among the refusals already
		out.Refusals = append(out.Refusals,
			"the servers have no such stream: make it there again, and the gateway fills it")
	}
	if !r.Emergency {
		return nil
	}
	bound, err := p.engine.RollbackBound(r.Scope)
	if err != nil {
		return unknown(err)
	}
	out.Cost = &face.RollbackCard{
		Possible: len(out.Refusals) == 0, Lossless: bound.Lossless && bound.Lost == 0, Lost: bound.Lost,
		Duplicates: bound.Duplicates, Why: bound.Why,
	}
	hold := slices.IndexFunc(out.Steps, func(s string) bool { return strings.HasPrefix(s, "hold ") })
	out.Steps = []string{
		"do NOT wait for what the servers lack, record the intent", out.Steps[max(hold, 0)],
		"leave the servers' stream and consumers as they are, but for what was lifted for the way back",
		fmt.Sprintf("record epoch %d: the servers have the say", out.Epoch), "release what was held, copy again",
	}
	return nil
}
