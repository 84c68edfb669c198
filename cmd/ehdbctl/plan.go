package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

// planFile is what `ehdbctl plan --out` writes and `ehdbctl plan apply` takes.
type planFile struct {
	Server  string       `yaml:"gateway"`
	Made    time.Time    `yaml:"made"`
	Digest  string       `yaml:"digest"` // of the streams' configurations at that time
	Streams []planStream `yaml:"streams"`
}

// planStream is a stream in it.
type planStream struct {
	Scope    string   `yaml:"scope"`
	Phase    string   `yaml:"phase"` // when the plan was made
	To       string   `yaml:"to"`    // nats, shadow or ehdb: where it is to go
	Kind     string   `yaml:"kind"`
	Messages uint64   `yaml:"messages"`
	Bytes    uint64   `yaml:"bytes"`
	Refusals []string `yaml:"refusals,omitempty"`
}

const planHead = `# Set "to" of each stream to nats, shadow or ehdb, then: ehdbctl plan apply FILE
# The streams are moved one after the other, in this order, and the first that is refused ends it. When the streams
# on the servers are not as they were when this was made (digest), nothing is done.
`

func (c *remote) planCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use: "plan", Short: "List what the servers hold and what speaks against moving it",
		Long: `List what the servers hold and what speaks against moving it. With --out it is written as a plan too: a
YAML file that says where each stream is to go, for "ehdbctl plan apply".`,
		Example: `  ehdbctl plan --out plan.yaml
  ehdbctl plan apply plan.yaml --dry-run
  ehdbctl plan apply plan.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var inv face.Inventory
			if err := c.get(cmd.Context(), "/inventory", nil, &inv); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if out == "" {
				return c.show(w, inv, func() { printInventory(w, &inv) })
			}
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			if err := writePlan(out, &inv, st); err != nil {
				return err
			}
			return c.show(w, inv, func() {
				printInventory(w, &inv)
				fmt.Fprintf(w, "written to %s\nNEXT  ehdbctl plan apply %s --dry-run\n", out, out)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write the plan to this file, which must not be there yet")
	cmd.AddCommand(c.planApply())
	return cmd
}

// writePlan writes a plan in which every stream stays where it is.
func writePlan(name string, inv *face.Inventory, st *face.Status) error {
	p := planFile{Server: st.Server, Made: inv.At.UTC(), Digest: inv.Digest}
	for i := range inv.Streams {
		s := &inv.Streams[i]
		phase := string(phaseOf(st, s.Scope))
		p.Streams = append(p.Streams, planStream{
			Scope: s.Scope.String(), Phase: phase, To: phase, Kind: s.Kind, Messages: s.Messages, Bytes: s.Bytes,
			Refusals: s.Refusals,
		})
	}
	doc, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, planHead+string(doc))
	return errors.Join(err, f.Close())
}

// phaseOf is where a stream is: one that is not under watch is the servers'.
func phaseOf(st *face.Status, s cutover.Scope) face.Phase {
	if state := stateOf(st, s); state != nil {
		return state.Phase
	}
	return face.PhaseNATS
}

func stateOf(st *face.Status, s cutover.Scope) *face.StreamState {
	for i := range st.Streams {
		if st.Streams[i].Scope == s {
			return &st.Streams[i]
		}
	}
	return nil
}

func readPlan(name string) (*planFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	var p planFile
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("%s is no plan: %w", name, err)
	}
	for _, s := range p.Streams {
		if _, err := cutover.ParseScope(s.Scope); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch s.To {
		case string(face.PhaseNATS), string(face.PhaseShadow), string(face.PhaseEHDB):
		default:
			return nil, fmt.Errorf("%s: %s: to: %q is none of nats, shadow, ehdb", name, s.Scope, s.To)
		}
	}
	return &p, nil
}

func (c *remote) planApply() *cobra.Command {
	force := map[string]string{}
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Move the streams to where a plan wants them",
		Long: `Move the streams to where a plan wants them, one after the other. What is there already is passed over,
so it can be run again. Streams that are not as they were when the plan was made are an error before anything is done.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := forceable(force); err != nil {
				return err
			}
			p, err := readPlan(args[0])
			if err != nil {
				return err
			}
			var inv face.Inventory
			if err := c.get(cmd.Context(), "/inventory", nil, &inv); err != nil {
				return err
			}
			if inv.Digest != p.Digest {
				return &exitError{exitNoGo, fmt.Errorf("the streams are not as they were when the plan was made "+
					"(digest %s, now %s): make a new one with ehdbctl plan --out", p.Digest, inv.Digest)}
			}
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			for _, s := range p.Streams {
				if err := c.bring(cmd, st, s, force); err != nil {
					return fmt.Errorf("%s: %w", s.Scope, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringToStringVar(&force, "force", nil, "gates to do without, with a reason each: G11=ticket")
	return cmd
}

// bring moves one stream to where the plan wants it.
func (c *remote) bring(cmd *cobra.Command, st *face.Status, s planStream, force map[string]string) error {
	scope, err := cutover.ParseScope(s.Scope)
	if err != nil {
		return err
	}
	w, phase := cmd.OutOrStdout(), phaseOf(st, scope)
	verb := wayTo(phase, face.Phase(s.To))
	m := streamMode{Scope: scope, Phase: phase, Way: "ehdbctl " + verb + " " + scope.Flag()}
	switch {
	case verb == "":
		m.Way = ""
		return c.show(w, m, func() { fmt.Fprintf(w, "%s: is in %s\n", scope, phase) })
	case verb == "none":
		return &exitError{exitNoGo, fmt.Errorf("there is no way from %s to %s in one step", phase, s.To)}
	case c.dry:
		return c.show(w, m, func() { fmt.Fprintf(w, "%s: from %s to %s: %s\n", scope, phase, s.To, m.Way) })
	case !c.json:
		fmt.Fprintf(w, "%s: from %s to %s\n", scope, phase, s.To)
	}
	switch verb {
	case "flip":
		var m face.Move
		q := face.FlipRequest{Actor: c.actor(), Scope: scope, Retries: 3, Force: force}
		if err := c.post(cmd.Context(), "/flip", q, &m); err != nil {
			return err
		}
		return c.moved(cmd, &m)
	case "rollback":
		return c.rollback(cmd, stateOf(st, scope), face.RollbackRequest{})
	}
	q := face.ShadowRequest{Actor: c.actor(), Scope: scope, Action: strings.TrimPrefix(verb, "shadow ")}
	return c.change(cmd, "/shadow", q, verb)
}

// wayTo is the verb that leads from one phase to another: "" if it is there, "none" if there is none.
func wayTo(from, to face.Phase) string {
	switch {
	case from == to, from == face.PhaseCanary && to == face.PhaseShadow:
		return ""
	case from == face.PhaseNATS && to == face.PhaseShadow:
		return "shadow start"
	case to == face.PhaseNATS && (from == face.PhaseShadow || from == face.PhaseCanary):
		return "shadow stop"
	case to == face.PhaseEHDB && (from == face.PhaseShadow || from == face.PhaseCanary):
		return "flip"
	case from == face.PhaseEHDB && (to == face.PhaseShadow || to == face.PhaseNATS):
		return "rollback"
	}
	return "none"
}

func printInventory(w io.Writer, inv *face.Inventory) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tKIND\tMESSAGES\tBYTES\tCONSUMERS\tCOPY\tSHARDS\tFEATURES\tREFUSED")
	for i := range inv.Streams {
		s := &inv.Streams[i]
		refused := strings.Join(s.Refusals, "; ")
		if refused == "" {
			refused = "no"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Scope, s.Kind, s.Messages, size(int64(s.Bytes)),
			s.Consumers, short(s.Seconds), dash(strings.Trim(fmt.Sprint(s.Shards), "[]")),
			strings.Join(s.Features, ", "), refused)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "total: %d streams, %d messages, %s to copy; the longest takes about %s\n", inv.Total.Streams,
		inv.Total.Messages, size(int64(inv.Total.Bytes)), short(inv.Total.Seconds))
	for i := range inv.Streams {
		if s := &inv.Streams[i]; len(s.Groups) > 0 {
			fmt.Fprintf(w, "deliver groups of %s: %s\n", s.Scope, strings.Join(s.Groups, ", "))
		}
	}
	for _, q := range inv.Queues {
		fmt.Fprintf(w, "queue group: %s of %s %s, %d members\n", q.Queue, q.Account, q.Subject, q.Members)
	}
	for _, k := range inv.Clients {
		fmt.Fprintf(w, "clients: %d of %s %s\n", k.Count, k.Lang, k.Version)
	}
	for _, s := range inv.Scalers {
		fmt.Fprintf(w, "autoscaler: %s from %s asks %s, last %s ago\n", s.Agent, s.Addr, s.Page, ago(inv.At, s.At))
	}
	for i := range inv.Streams {
		if s := &inv.Streams[i]; len(s.Managed) > 0 {
			fmt.Fprintf(w, "configuration of %s is kept by another program: %s\n", s.Scope,
				strings.Join(s.Managed, ", "))
		}
	}
	for _, n := range inv.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintf(w, "digest %s\nNEXT  ehdbctl plan --out plan.yaml\n", inv.Digest)
}

// look asks for the status again and again until fn wants no more.
func (c *remote) look(ctx context.Context, every time.Duration, fn func(*face.Status) (bool, error)) error {
	for {
		st, err := c.status(ctx)
		if err != nil {
			return err
		}
		if more, err := fn(st); err != nil || !more || !pause(ctx, every) {
			return err
		}
	}
}
