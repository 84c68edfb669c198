package pilot

import (
	"fmt"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

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
	here := verb == "rollback" || verb == "complete" // for streams that are served from here
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
		case "rollback":
			return "the way back was given up: ehdbctl rollback --emergency " + arg + " takes it all the same, " +
				"without what the servers lack, and says what that loses"
		}
		return "what is here is no copy, the gateway has the say for good: there is nothing to stop"
	case flip.PhaseFlipping, flip.PhaseRollingBack:
	}
	return ""
}
