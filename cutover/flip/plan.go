package flip

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// Plan is what a move would do, and a digest that changes when that does.
type Plan struct {
	Scope   cutover.Scope `json:"scope"`
	To      string        `json:"to"`
	Epoch   uint64        `json:"epoch"`
	Steps   []string      `json:"steps"`
	Refusal []string      `json:"refusals,omitempty"`
	Undo    string        `json:"undo"`
	Digest  string        `json:"digest"`
}

// PlanFlip returns what Flip would do with these options.
func (e *Engine) PlanFlip(ctx context.Context, name cutover.Scope, o *MoveOptions) (*Plan, error) {
	p := &Plan{To: "ehdb", Undo: "ehdbctl rollback " + name.Flag()}
	back := "start the reverse chain and the ghosts of the consumers"
	if o.NoReverse {
		back = "start NO reverse chain: the servers lack what is published from now on, and a rollback loses it"
		p.Undo += " --emergency"
	}
	return p, e.plan(ctx, p, name, cutover.Authority, func(epoch uint64) []string {
		return []string{
			"record the intent",
			fmt.Sprintf("hold publishes, requests, acks and pulls of %s, at most %v", name.Stream, DefaultFence),
			"wait until no publish waits for its PubAck and the servers have taken all that was sent",
			"require the copy to be durably equal, take consumers and message ids over",
			fmt.Sprintf("verify that the stream has not moved for %v", verifyTime),
			fmt.Sprintf("record epoch %d: the gateway has the say", epoch),
			back,
			"release what was held, continue pulls here",
			o.observeStep(),
		}
	})
}

// PlanRollback returns what Rollback would do.
func (e *Engine) PlanRollback(ctx context.Context, name cutover.Scope) (*Plan, error) {
	p := &Plan{To: "nats", Undo: "ehdbctl flip " + name.Flag()}
	config := e.configStep(ctx, name)
	return p, e.plan(ctx, p, name, cutover.Standby, func(epoch uint64) []string {
		return []string{
			"wait until the servers have everything, record the intent",
			fmt.Sprintf("hold publishes, requests, acks and pulls of %s, at most %v", name.Stream, DefaultFence),
			config,
			"bring the servers' consumers to where the gateway's are, remove what was removed here",
			"require both sides to be equal, and that no consumer would deliver what is acknowledged here",
			fmt.Sprintf("record epoch %d: the servers have the say", epoch),
			"release what was held, copy again",
		}
	})
}

// configStep says what a rollback would change of the configuration upstream.
func (e *Engine) configStep(ctx context.Context, name cutover.Scope) string {
	const step = "give the servers' stream the configuration that it has here: "
	s, err := e.find(name)
	if err != nil {
		return step
	}
	info, err := s.up.Info(ctx)
	if err != nil {
		return step + "it cannot be looked at now"
	}
	here := s.copy.Config()
	lifted := reverse.Lifted(here)
	limits := reverse.Differs(&here, &lifted)
	if changed := reverse.Differs(&lifted, &info.Config); len(changed) == 0 && len(limits) > 0 {
		return step + "it has it, but for the limits that are lifted while the chain publishes (" +
			strings.Join(limits, ", ") + ")"
	}
	if changed := reverse.Differs(&here, &info.Config); len(changed) > 0 {
		return step + strings.Join(changed, ", ")
	}
	return step + "it has it"
}

// plan fills in what all plans have.
func (e *Engine) plan(
	ctx context.Context, p *Plan, name cutover.Scope, to cutover.Role, steps func(epoch uint64) []string,
) error {
	s, err := e.find(name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	epoch, cfg := e.epoch, s.config
	e.mu.Unlock()
	p.Scope, p.Epoch, p.Refusal, p.Steps = name, epoch+1, e.refusals(ctx, s, to), steps(epoch+1)
	p.digest(cfg)
	return nil
}

func (p *Plan) digest(cfg server.StreamConfig) {
	doc, err := json.Marshal(struct {
		Plan   Plan
		Config server.StreamConfig
	}{Plan{Scope: p.Scope, To: p.To, Epoch: p.Epoch, Steps: p.Steps}, cfg})
	if err != nil {
		panic("flip: " + err.Error())
	}
	sum := sha256.Sum256(doc)
	const enough = 8
	p.Digest = hex.EncodeToString(sum[:enough])
}

// refusals is why a stream may not be moved now.
func (e *Engine) refusals(ctx context.Context, s *stream, to cutover.Role) (list []string) {
	e.mu.Lock()
	cfg, phase, oneWay, left := s.config, s.phase, s.oneWay, s.leftover
	e.mu.Unlock()
	want := PhaseShadow
	if to == cutover.Standby {
		want = PhaseEHDB
	}
	if phase != want {
		list = append(list, fmt.Sprintf("the stream is in phase %s, not %s", phase, want))
	}
	if to == cutover.Standby && oneWay {
		list = append(list, noWayBack+" (--emergency)")
	}
	if to == cutover.Standby && phase == want {
		list = append(list, e.irreversible(s)...)
	}
	if to == cutover.Authority {
		list = append(list, Unsupported(&cfg)...)
		if left && phase == want {
			list = append(list, leftover(s.name))
		}
		if why := e.pausing(s); why != "" {
			list = append(list, "copying is paused: "+why+" (ehdbctl resume)")
		}
		if why := strangers(e.o.Relay.Strangers(s.name.Account)); why != "" {
			list = append(list, why)
		}
	}
	if f := e.o.Refuse; f != nil {
		list = append(list, f(ctx, s.name, to)...)
	}
	return list
}

// strangers says who is in the way of serving streams of an account from here, and what helps; empty: nobody.
func strangers(list []relay.Client) string {
	const most = 5
	if len(list) == 0 {
		return ""
	}
	var named []string
	for _, c := range list[:min(most, len(list))] {
		named = append(named, strings.TrimSpace(fmt.Sprintf("cid %d %s", c.ID, c.Identity.User)))
	}
	return fmt.Sprintf("%d clients are connected of which account or permissions are not known (%s; /connz has them): "+
		"let them publish to $SYS.REQ.USER.INFO and subscribe to _INBOX.>, and connect anew", len(list),
		strings.Join(named, ", "))
}

// outrun reports whether limits of a stream, which cannot be lifted meanwhile, would remove on the servers what is kept
// here: acks make room here first.
func outrun(cfg *server.StreamConfig) bool {
	return cfg.Retention != server.LimitsPolicy && cfg.DenyPurge && cfg.Discard == server.DiscardOld &&
		(cfg.MaxMsgs > 0 || cfg.MaxMsgsPer > 0 || cfg.MaxBytes > 0)
}

// Unsupported is what about a stream cannot be taken over and given back without loss.
func Unsupported(cfg *server.StreamConfig) (list []string) {
	for name, used := range map[string]bool{
		"it is a mirror: promote it, or move its origin":                                 cfg.Mirror != nil,
		"it has sources: move their origins, then it":                                    len(cfg.Sources) > 0,
		"allow_msg_counter: increments cannot be published at a given sequence":          cfg.AllowMsgCounter,
		"allow_msg_schedules: the servers would fire the schedules of the chain as well": cfg.AllowMsgSchedules,
		"republish: the servers would republish what the chain publishes as well":        cfg.RePublish != nil,
		"subject_transform: the chain cannot publish what was transformed":               cfg.SubjectTransform != nil,
		"sealed": cfg.Sealed,
		"limits and deny_purge where acks make room: the servers would remove what is kept here": outrun(cfg),
	} {
		if used {
			list = append(list, name)
		}
	}
	return list
}
