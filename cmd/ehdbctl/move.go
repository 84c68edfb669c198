package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

func (c *remote) flipCommand() *cobra.Command {
	q, force, observe := face.FlipRequest{}, map[string]string{}, time.Duration(0)
	cmd := &cobra.Command{
		Use: "flip", Short: "Make the gateway the authority of a stream",
		Long: `Make the gateway the authority of a stream. Clients keep their connections; what they send is
held for as long as the fence lasts, --max-fence at most, and then goes on. If the budget runs out, nothing has changed.

With --postpone everything but the fence is done, and the gateway waits for "flip go" or "flip abort"; with
--postpone-file it waits for as long as that file is there, on its own machine. This program does not wait with it.
Then the gates are asked again. With --dry-run the plan is shown, whose digest --expect takes.

Behind the flip it is observed (--observe, else bus.observe): what fails twice in a row meanwhile rolls it back by
itself, without a loss. "flip accept" ends that.

Without a reverse shadow (--no-reverse-shadow) the servers are not kept equal: a rollback loses what was published
meanwhile, and says how much.

Exit code: 0 done, or it would be; 2 refused, and nothing has changed; 3 likewise, for there is too little evidence and
no gate fails; 1 it could not be done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := forceable(force); err != nil {
				return err
			}
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("observe") {
				q.Observe = &observe
			}
			if c.dry {
				r := face.PlanRequest{Scope: scope, To: "ehdb", NoReverse: q.NoReverse, Observe: q.Observe}
				return c.dryRun(cmd, r)
			}
			if q.NoReverse && !q.Understood {
				return errors.New("--no-reverse-shadow: a rollback will lose what is published after the flip: say " +
					"--i-understand")
			}
			q.Actor, q.Scope, q.Force = c.actor(), scope, force
			var m face.Move
			if err := c.post(cmd.Context(), "/flip", q, &m); err != nil {
				return err
			}
			return c.moved(cmd, &m)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&q.MaxFence, "max-fence", 0, "how long clients may be held; 0: 1.5s")
	f.IntVar(&q.Retries, "retries", 3, "how often to try again when that is not enough")
	f.DurationVar(&q.HoldWindow, "hold-window", 0,
		"for how long to wait and try again until the stream is quiet enough; 0: 1h to wait, and --retries")
	f.DurationVar(&observe, "observe", 0,
		"for how long it is observed, and rolled back by itself when something fails; 0: not at all")
	f.StringVar(&q.Expect, "expect", "", "digest of the plan that was agreed to")
	f.BoolVar(&q.Postpone, "postpone", false, "do everything but the fence, and wait for go")
	f.StringVar(&q.PostponeFile, "postpone-file", "",
		"wait while this file is there, on the gateway's machine, or for go")
	f.BoolVar(&q.Test, "test", false, "and back at once")
	f.BoolVar(&q.NoReverse, "no-reverse-shadow", false, "do NOT keep the servers equal: a rollback will lose messages")
	f.BoolVar(&q.Understood, "i-understand", false, "that --no-reverse-shadow leaves no way back without a loss")
	f.StringToStringVar(&force, "force", nil, "gates to do without, with a reason each: G11=ticket")
	cmd.AddCommand(
		c.releaseCommand("go", "Let a postponed flip happen, and wait for it"),
		c.releaseCommand("abort", "Cancel a postponed flip, also between its attempts: nothing has changed"),
		c.acceptCommand(),
	)
	return cmd
}

// forceable is why some gates cannot be done without: it is said before anything happens, also with --dry-run.
func forceable(forced map[string]string) error {
	if why := gate.Unforceable(forced); why != "" {
		return errors.New("--force " + why)
	}
	return nil
}

// releaseCommand ends the wait of a postponed flip.
func (c *remote) releaseCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			body := face.ScopedRequest{Actor: c.actor(), Scope: scope}
			if c.dry {
				return c.would(cmd.OutOrStdout(), "/flip/"+use, body)
			}
			var m face.Move
			if err := c.post(cmd.Context(), "/flip/"+use, body, &m); err != nil {
				return err
			}
			return c.moved(cmd, &m)
		},
	}
}

// acceptCommand ends the observation behind a flip.
func (c *remote) acceptCommand() *cobra.Command {
	return &cobra.Command{
		Use: "accept", Short: "End the observation behind a flip: it is not rolled back by itself any more",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			body := face.ScopedRequest{Actor: c.actor(), Scope: scope}
			return c.change(cmd, "/flip/accept", body, scope.String()+": the flip is accepted")
		},
	}
}

// moved says what a move came to.
func (c *remote) moved(cmd *cobra.Command, m *face.Move) error {
	w := cmd.OutOrStdout()
	return c.show(w, m, func() {
		switch m.State {
		case "postponed":
			fmt.Fprintf(w, "%s: everything is ready, and the gateway waits\n", m.Scope)
		case "aborted":
			fmt.Fprintf(w, "%s: nothing has changed\n", m.Scope)
		default:
			fmt.Fprintf(w,
				"%s: authority %s, epoch %d, behind sequence %d; fence %s in %d attempt(s), %d consumers came along\n",
				m.Scope, strings.ToUpper(m.To), m.Epoch, m.Last, short(m.Fence), m.Attempts, m.Consumers)
			fmt.Fprintf(w, "lost %d, delivered twice at most %d", m.Lost, m.Duplicates)
			if len(m.Inexact) > 0 {
				fmt.Fprintf(w, " (consumers whose state was not exact: %s)", strings.Join(m.Inexact, ", "))
			}
			fmt.Fprintln(w)
		}
		undoNext(w, m.Undo, m.Next)
	})
}

// dryRun shows the plan of a move.
func (c *remote) dryRun(cmd *cobra.Command, r face.PlanRequest) error {
	var p face.Plan
	q := scopeQuery(r.Scope, "to", r.To, "no_reverse_shadow", strconv.FormatBool(r.NoReverse))
	if r.Emergency {
		q.Set("emergency", "true")
	}
	if r.Observe != nil {
		q.Set("observe", r.Observe.String())
	}
	if err := c.get(cmd.Context(), "/plan", q, &p); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	err := c.show(w, p, func() { printPlan(w, &p, &r) })
	if err == nil && len(p.Refusals) > 0 {
		err = &exitError{code: exitNoGo}
		if p.NotEnough {
			err = &exitError{code: exitNotEnough}
		}
	}
	return err
}

func printPlan(w io.Writer, p *face.Plan, r *face.PlanRequest) {
	for i, s := range p.Steps {
		fmt.Fprintf(w, "%2d  %s\n", i+1, s)
	}
	fmt.Fprintf(w, "plan digest %s  gates: %s\nUNDO  %s\n", p.Digest, p.Gates, p.Undo)
	if p.Cost != nil {
		fmt.Fprintf(w, "at most %d messages would be lost and %d delivered twice%s\n", p.Cost.Lost, p.Cost.Duplicates,
			prefixed(": ", p.Cost.Why))
	}
	for _, r := range p.Refusals {
		fmt.Fprintln(w, "would be refused:", r)
	}
	if len(p.Refusals) == 0 {
		next := "flip " + p.Scope.Flag() + " --expect " + p.Digest
		if r.Observe != nil {
			next += " --observe " + r.Observe.String()
		}
		if r.NoReverse {
			next += " --no-reverse-shadow --i-understand"
		}
		if p.To == "nats" {
			next = "rollback " + p.Scope.Flag()
		}
		if r.Emergency {
			next += " --emergency"
		}
		fmt.Fprintln(w, "NEXT  ehdbctl", next)
	}
}

func (c *remote) completeCommand() *cobra.Command {
	q, force := face.CompleteRequest{}, map[string]string{}
	cmd := &cobra.Command{
		Use: "complete", Short: "Give up the way back of a stream: this cannot be undone",
		Long: `Give up the way back of a stream: the servers are not kept equal any more. This cannot be undone. It is
behind all gates and G24: the stream has been served from here for long enough and over a restart, the servers are
equal, somebody else approves (--approved-by), and it is said which credentials of the servers are to be retired
(--retire).

Exit code: 0 done, 2 refused, 3 refused, for there is too little evidence and no gate fails, 1 it could not be done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := forceable(force); err != nil {
				return err
			}
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			if !q.Understood && !c.dry {
				return errors.New(
					"the servers will not be kept equal any more, and nothing undoes that: say --i-understand",
				)
			}
			q.Actor, q.Scope, q.Force = c.actor(), scope, force
			return c.change(cmd, "/complete", q, scope.String()+": the way back is given up")
		},
	}
	f := cmd.Flags()
	f.BoolVar(&q.Understood, "i-understand", false, "that there is no way back")
	f.StringVar(&q.Approver, "approved-by", "",
		"a second person, who is not --by; where there is an approvers' token: ehdbctl approve")
	f.StringVar(&q.Credentials, "retire", "", "the servers' credentials that are to be retired now, in words")
	f.StringToStringVar(&force, "force", nil, "gates to do without, with a reason each: G11=ticket")
	return cmd
}

// approveCommand is for whoever has the approvers' token.
func (c *remote) approveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "approve", Short: "Approve that the way back of a stream is given up, with the approvers' token",
		Long: `Approve that the way back of a stream is given up. It takes the approvers' token (--token-file), which is
not the operator's, counts for an hour, and has to be of somebody else than who asks for "complete" (--by). Where there
is no such token, "complete --approved-by" names a second person.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			body := face.ScopedRequest{Actor: c.actor(), Scope: scope}
			return c.change(cmd, "/approve", body, scope.String()+": approved, for an hour")
		},
	}
	c.tokenFlag(cmd, "file with the approvers' token, "+face.ApproverFile+" in the gateway's data directory, which is "+
		"made by hand (EHDB_TOKEN_FILE)")
	return cmd
}

func (c *remote) canaryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "canary", Short: "Serve one consumer, or all of a stream, from here while NATS stays the authority",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var abort []string
	for _, sub := range []struct{ use, short, what string }{
		{
			"add", "Serve a consumer from here: --scope consumer=STREAM/NAME, or all of stream=STREAM",
			"it is served from here",
		},
		{"rm", "Let the servers serve it again, or all of stream=STREAM", "it is served by the servers"},
	} {
		s := &cobra.Command{
			Use:   sub.use,
			Short: sub.short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				q := face.CanaryRequest{Actor: c.actor(), Remove: sub.use == "rm", Abort: abort}
				if err := c.canaryOf(cmd.Context(), &q); err != nil {
					return err
				}
				return c.canary(cmd, &q, sub.what)
			},
		}
		if sub.use == "add" {
			s.Flags().StringSliceVar(&abort, "auto-abort-on", nil, "gates that end it: G4,G10,G11")
		}
		cmd.AddCommand(s)
	}
	return cmd
}

// canaryOf reads from --scope which consumer is meant; one stream: all of it that can be.
func (c *remote) canaryOf(ctx context.Context, q *face.CanaryRequest) (err error) {
	name, ok := strings.CutPrefix(c.scope, "consumer=")
	if !ok {
		q.Scope, err = c.one(ctx)
		return err
	}
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return errors.New("give --scope consumer=STREAM/NAME, or stream=STREAM for all of its consumers that can be")
	}
	q.Scope, err = c.named(ctx, name[:i])
	q.Consumer = name[i+1:]
	return err
}

// canary asks for it, and says what became of each consumer.
func (c *remote) canary(cmd *cobra.Command, q *face.CanaryRequest, what string) error {
	w := cmd.OutOrStdout()
	if c.dry {
		return c.would(w, "/canary", q)
	}
	var a struct {
		changed
		Consumers []face.CanaryResult `json:"consumers"`
	}
	if err := c.post(cmd.Context(), "/canary", q, &a); err != nil {
		return err
	}
	return c.show(w, a, func() {
		if q.Consumer != "" {
			fmt.Fprintln(w, what)
		}
		for _, r := range a.Consumers {
			side := "the servers"
			if r.Served {
				side = "here"
			}
			fmt.Fprintf(w, "consumer %s is served from %s%s\n", r.Consumer, side, prefixed(": ", r.Why))
		}
		undoNext(w, a.Undo, a.Next)
	})
}

// streamMode is what "mode" says about a stream.
type streamMode struct {
	Scope cutover.Scope `json:"scope"`
	Phase face.Phase    `json:"phase"`
	Legal []string      `json:"legal,omitempty"`
	Way   string        `json:"way,omitempty"` // how it gets into the mode that was asked for
}

// modeCommand leads to the verbs that change a stream's mode.
func (c *remote) modeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mode [nats|shadow|ehdb]", Short: "Show the mode of the streams, or get one of them into another",
		Long: `Show the mode of the streams, or, with --scope, get a stream into another: with the verb that leads there
(shadow start, shadow stop, flip, rollback), as that verb is by itself. Without --scope it is only said how.

Exit code: 0 shown or done, 2 there is no such way from where the stream is, or refused, 1 it could not be done.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 && c.scope != "" && !c.dry {
				return c.setMode(cmd, st, face.Phase(args[0]))
			}
			list := []streamMode{}
			for i := range st.Streams {
				s := &st.Streams[i]
				if !matches(c.scope, s.Scope) {
					continue
				}
				m := streamMode{Scope: s.Scope, Phase: s.Phase, Legal: s.Legal}
				if len(args) == 1 {
					m.Way = way(s, args[0])
				}
				list = append(list, m)
			}
			w := cmd.OutOrStdout()
			return c.show(w, list, func() {
				for _, m := range list {
					how := "legal: " + strings.Join(m.Legal, ", ")
					fmt.Fprintf(w, "%s  %s  %s\n", m.Scope, m.Phase, cmp.Or(m.Way, how))
				}
			})
		},
	}
}

// setMode gets a stream into a mode.
func (c *remote) setMode(cmd *cobra.Command, st *face.Status, to face.Phase) error {
	scope, err := c.one(cmd.Context())
	if err != nil {
		return err
	}
	s := &face.StreamState{Scope: scope, Phase: face.PhaseNATS, Legal: []string{"shadow start"}}
	for i := range st.Streams {
		if st.Streams[i].Scope == scope {
			s = &st.Streams[i]
		}
	}
	switch verb := wayTo(s.Phase, to); verb {
	case "":
		return c.show(cmd.OutOrStdout(), s, func() {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is in %s\n", scope, s.Phase)
		})
	case "shadow start", "shadow stop":
		q := face.ShadowRequest{Actor: c.actor(), Scope: scope, Action: strings.TrimPrefix(verb, "shadow ")}
		return c.change(cmd, "/shadow", q, scope.String()+": "+verb)
	case "flip":
		var m face.Move
		q := face.FlipRequest{Actor: c.actor(), Scope: scope, Retries: 3}
		if err := c.post(cmd.Context(), "/flip", q, &m); err != nil {
			return err
		}
		return c.moved(cmd, &m)
	case "rollback":
		return c.rollback(cmd, s, face.RollbackRequest{})
	}
	if to == face.PhaseCanary {
		return &exitError{exitNoGo, errors.New("a canary is of one consumer: ehdbctl canary add --scope 'consumer=" +
			scope.String() + "/NAME'")}
	}
	return &exitError{exitNoGo, fmt.Errorf("%s is in %s: there is no way to %s; legal: %s", scope, s.Phase, to,
		strings.Join(s.Legal, ", "))}
}

// way is the verb that leads a stream to a mode.
func way(s *face.StreamState, to string) string {
	verb := wayTo(s.Phase, face.Phase(to))
	switch verb {
	case "":
		return "it is there"
	case "none":
		return "there is no way to " + to + "; legal: " + strings.Join(s.Legal, ", ")
	}
	return "ehdbctl " + verb + " " + s.Scope.Flag()
}
