package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

func (c *remote) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff", Short: "Compare a stream of the servers with its copy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.diffCreate(), c.diffResume(), c.diffStop(), c.diffShow(), c.diffWatch(),
		c.diffFindings(), c.diffExplain(), c.diffRepair(),
		c.diffKnown())
	return cmd
}

func (c *remote) diffCreate() *cobra.Command {
	wait, full := false, false
	q := face.DiffRequest{Action: "create"}
	cmd := &cobra.Command{
		Use: "create", Short: "Compare a stream anew: all of it, what is new, or a sample",
		Long: `Compare a stream anew: all of it, what is newer than --since, or --sample percent of its blocks (of 1,024
sequences, another choice each time). A part says which it was, and is never taken for all: G3 asks for a full
comparison. What a part finds begins a full one, and until that is done not everything counts as compared.

Exit code: 0 it begins; with --wait: equal. 2 something differs, or refused, 3 it was stopped, 1 it could not be done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			if q.Actor, q.Scope = c.actor(), scope; wait && !c.dry {
				return c.compareAll(cmd, &q)
			}
			what := "a full comparison begins"
			if q.Since > 0 || q.Sample > 0 {
				what = "a comparison of a part begins"
			}
			return c.change(cmd, "/diff", q, what)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&wait, "wait", false, "wait until it is done, and show how far it is")
	f.BoolVar(&full, "full", false, "all of it, from the first record on (as without any of these)")
	f.DurationVar(&q.Since, "since", 0, "only what is newer than so long ago: 1h")
	f.Float64Var(&q.Sample, "sample", 0, "only so many percent of the blocks: 10")
	cmd.MarkFlagsMutuallyExclusive("full", "since", "sample")
	return cmd
}

// diffResume goes on with a comparison that was stopped or has ended: what was compared stays, and what is new since is
// compared all the time, so that is to wait for.
func (c *remote) diffResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume", Short: "Wait until everything up to now is compared, behind what was compared before",
		Long: `Wait until everything up to now is compared, behind what was compared before: a stream is compared as it
grows, so only what is younger than the window is left. A full comparison that is running is waited for too.

Exit code: 0 equal, 2 something differs, 3 it did not come to its end, 1 it could not be compared.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			return c.compared(cmd, scope)
		},
	}
}

func (c *remote) diffWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Show how the comparison of streams stands, a line each, again and again",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			return c.look(cmd.Context(), watchEvery, func(st *face.Status) (bool, error) {
				for i := range st.Streams {
					s := &st.Streams[i]
					if s.Parity == nil || !matches(c.scope, s.Scope) {
						continue
					}
					if err := c.show(w, s.Parity, func() { printDiffLine(w, st, s) }); err != nil {
						return false, err
					}
				}
				return true, nil
			})
		},
	}
}

func printDiffLine(w io.Writer, st *face.Status, s *face.StreamState) {
	p := s.Parity
	equal := "equal"
	switch {
	case p.Digest.At.IsZero():
		equal = "not compared yet"
	case !p.Digest.Equal:
		equal = "DIFFER"
	}
	fmt.Fprintf(w, "%s  %-24s %-14s examined %d  match %d  pending %d  diverged %d  digests %s @%d\n",
		st.At.UTC().Format(time.TimeOnly), s.Scope, p.Outcome, p.Counts.Examined, p.Counts.By[parity.Match],
		p.Counts.By[parity.Pending], p.Counts.Diverged(), equal, p.Digest.Through)
}

// bar shows how far something is.
func bar(done, of uint64) string {
	const width = 30
	if of == 0 {
		of = 1
	}
	n := int(min(done, of) * width / of) //nolint:gosec // at most width
	return fmt.Sprintf("[%s%s] %d of %d (%d %%)", strings.Repeat("#", n), strings.Repeat(".", width-n), done, of,
		min(done, of)*100/of)
}

func (c *remote) diffStop() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop a full comparison; what was known before stays", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			return c.change(cmd, "/diff", face.DiffRequest{Actor: c.actor(), Scope: scope, Action: "stop"},
				"the comparison stops")
		},
	}
}

func (c *remote) diffShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the comparison of a stream", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			var d face.Diff
			if err := c.get(cmd.Context(), "/diff", scopeQuery(scope), &d); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return c.show(w, d, func() { printDiff(w, &d) })
		},
	}
}

func printDiff(w io.Writer, d *face.Diff) {
	st := &d.Status
	fmt.Fprintf(w, "%s: %s, as of %s\n", st.Scope, st.Outcome, st.At.Format(time.DateTime))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range parity.States() {
		fmt.Fprintf(t, "  %s\t%d\t\n", s, st.Counts.By[s])
	}
	fmt.Fprintf(t, "  examined\t%d\t\n", st.Counts.Examined)
	_ = t.Flush()
	window := time.Duration(st.Window * float64(time.Second)).Round(time.Millisecond)
	if n := st.Counts.By[parity.Pending]; n > 0 {
		fmt.Fprintf(w, "pending: %d are younger than the window of %v, and compared when they are older\n", n, window)
	}
	if !st.Counts.Accounted() {
		fmt.Fprintln(w, "THE STATES DO NOT ADD UP: the instrument is broken")
	}
	for _, r := range st.Digest.Differing {
		fmt.Fprintf(w, "differing range %d to %d\n", r.First, r.Last)
	}
	for _, r := range d.Runs {
		if r.Part != nil {
			printPart(w, &r)
			continue
		}
		fmt.Fprintf(w, "full comparison %d: %s, %s  %s%s\n", r.ID, r.State, runOf(&r, window), r.Error,
			prefixed("waits: ", r.Waits))
	}
	if n := st.Counts.Diverged(); n > 0 {
		fmt.Fprintf(w, "NEXT  ehdbctl diff findings %s\n", st.Scope.Flag())
	}
}

// printPart is one line about a comparison of a part.
func printPart(w io.Writer, r *parity.Run) {
	fmt.Fprintf(w, "comparison %d of a part, not of all: %s, %s: examined %d, diverged %d  %s%s\n", r.ID, r.State,
		r.Part, r.Counts.Examined, r.Counts.Diverged(), r.Error, prefixed("waits: ", r.Waits))
}

// runOf is how far a full comparison is, or got: it ends ahead of the first record that is younger than the window.
func runOf(r *parity.Run, window time.Duration) string {
	if r.State != "done" || r.Through >= r.Of {
		return bar(r.Through, r.Of)
	}
	return fmt.Sprintf("%d of %d: the other %d were younger than the window of %v then, and are compared as they grow "+
		"older", r.Through, r.Of, r.Of-r.Through, window)
}

func (c *remote) diffFindings() *cobra.Command {
	var states []string
	healed, limit := false, 100
	cmd := &cobra.Command{
		Use: "findings", Short: "List what differs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := map[string][]string{
				"state":  states,
				"healed": {strconv.FormatBool(healed)},
				"limit":  {strconv.Itoa(limit)},
			}
			if c.scope != "" {
				scope, err := c.one(cmd.Context())
				if err != nil {
					return err
				}
				q["scope"] = []string{scope.String()}
			}
			var list face.FindingList
			if err := c.get(cmd.Context(), "/diff/findings", q, &list); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return c.show(w, list, func() { printFound(w, &list) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&states, "state", nil, "only this state; again for others")
	f.BoolVar(&healed, "healed", false, "those that are equal by now too")
	f.IntVar(&limit, "limit", limit, "how many")
	return cmd
}

func printFound(w io.Writer, list *face.FindingList) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tSEQ\tSTATE\tDIFFERS\tAGE\tHEALED\tWHY")
	for i := range list.Findings {
		f := &list.Findings[i]
		differs := "-"
		if f.Field != "" {
			differs = fmt.Sprintf("%s @%d", f.Field, f.Offset)
		}
		healed := "-"
		if !f.Healed.IsZero() {
			healed = f.Healed.Format(time.TimeOnly)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", f.Scope, f.Seq, f.State, differs, short(f.Age), healed, f.Reason)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "%d shown, %d more were not kept\n", len(list.Findings), list.Dropped)
	if len(list.Findings) > 0 {
		f := &list.Findings[0]
		fmt.Fprintf(w, "NEXT  ehdbctl diff explain '%s:%d'\n", f.Scope, f.Seq)
	}
}

func (c *remote) diffExplain() *cobra.Command {
	return &cobra.Command{
		Use: "explain STREAM:SEQ", Short: "Show one sequence as every witness tells of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := strings.LastIndexByte(args[0], ':')
			if i < 0 {
				return errors.New("give a stream and a sequence, as ORDERS:17")
			}
			scope, err := c.named(cmd.Context(), args[0][:i])
			if err != nil {
				return err
			}
			seq := args[0][i+1:]
			var f face.Explained
			if err := c.get(cmd.Context(), "/diff/explain", scopeQuery(scope, "seq", seq), &f); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return c.show(w, f, func() { printExplained(w, &f) })
		},
	}
}

func printExplained(w io.Writer, f *face.Explained) {
	fmt.Fprintf(w, "%s:%d is %s  %s\n", f.Scope, f.Seq, f.State, f.Reason)
	if f.Field != "" {
		fmt.Fprintf(w, "first difference: %s, byte %d\n", f.Field, f.Offset)
	}
	for _, side := range []struct {
		name string
		s    *parity.Shown
	}{{"authority", f.Authority}, {"copy", f.Copy}} {
		switch {
		case side.s == nil:
			fmt.Fprintf(w, "%-10s has none\n", side.name)
		case side.s.Error != "":
			fmt.Fprintf(w, "%-10s %s\n", side.name, side.s.Error)
		default:
			fmt.Fprintf(w, "%-10s %s  %s  %d bytes  hash %s\n", side.name, side.s.Time.Format(time.RFC3339Nano),
				side.s.Subject, side.s.Size, side.s.Hash)
			if side.s.Header != "" {
				fmt.Fprintf(w, "           %s\n",
					strings.ReplaceAll(strings.TrimSpace(side.s.Header), "\n", "\n           "))
			}
			if len(side.s.Data) > 0 {
				fmt.Fprintf(w, "           %q\n", side.s.Data[:min(len(side.s.Data), 256)])
			}
		}
	}
	if f.Ledger != nil {
		fmt.Fprintf(w, "%-10s acknowledged %s  %s  hash %016x\n", "ledger",
			time.Unix(0, f.Ledger.When).Format(time.RFC3339Nano), f.Ledger.Subject, f.Ledger.Hash)
	} else {
		fmt.Fprintf(w, "%-10s no acknowledgement noted\n", "ledger")
	}
	if f.Redacted {
		fmt.Fprintln(w, "headers and payloads are shown with --token-file")
	}
}

func (c *remote) diffRepair() *cobra.Command {
	cmd := &cobra.Command{
		Use: "repair SEQ...", Short: "Copy sequences into the standby anew, byte by byte", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			body := struct {
				face.Actor
				Scope cutover.Scope `json:"scope"`
				Seqs  []uint64      `json:"seqs"`
			}{Actor: c.actor(), Scope: scope}
			for _, arg := range args {
				seq, err := strconv.ParseUint(arg, 10, 64)
				if err != nil {
					return err
				}
				body.Seqs = append(body.Seqs, seq)
			}
			w := cmd.OutOrStdout()
			if c.dry {
				return c.would(w, "/diff/repair", body)
			}
			var r parity.Repaired
			if err := c.post(cmd.Context(), "/diff/repair", body, &r); err != nil {
				return err
			}
			err = c.show(w, r, func() {
				fmt.Fprintf(w, "%s: %d asked, %d copied, %d removed, %d equal by content now  %s\n", r.Outcome, r.Asked,
					r.Copied, r.Removed, r.Content, r.Error)
				undoNext(w, "", "ehdbctl diff create "+scope.Flag())
			})
			if err == nil && r.Outcome != "repaired" {
				err = &exitError{code: exitNot}
			}
			return err
		},
	}
	return cmd
}

// knownGone is a known divergence that is not lived with any more.
type knownGone struct {
	Scope cutover.Scope `json:"scope"`
	Name  string        `json:"name"`
}

func (c *remote) diffKnown() *cobra.Command {
	cmd := &cobra.Command{
		Use: "known", Short: "List divergences that are known and live until they expire", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Known []parity.Known `json:"known"`
			}
			if err := c.get(cmd.Context(), "/diff/known", nil, &list); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return c.show(w, list, func() {
				for _, k := range list.Known {
					fmt.Fprintf(w, "%s  %s %d to %d  until %s  %s\n", k.Name, k.Scope, k.First, k.Last,
						k.Expires.Format(time.RFC3339), k.Reason)
				}
			})
		},
	}
	var k parity.Known
	days := 7
	add := &cobra.Command{
		Use: "add NAME", Short: "Ignore a range of sequences for some days", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			k.Name, k.Scope, k.Reason, k.Expires = args[0], scope, c.reason, time.Now().AddDate(0, 0, days)
			return c.change(cmd, "/diff/known", k, "ignored until "+k.Expires.Format(time.RFC3339))
		},
	}
	add.Flags().Uint64Var(&k.First, "first", 0, "first sequence")
	add.Flags().Uint64Var(&k.Last, "last", 0, "last sequence")
	add.Flags().IntVar(&days, "days", days, "for how long")
	rm := &cobra.Command{
		Use: "rm NAME", Short: "Do not ignore it any more", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if c.dry {
				return c.show(w, knownGone{scope, args[0]}, func() {
					fmt.Fprintf(w, "would ask the gateway: DELETE %s/diff/known of %s: %s\n", face.Base, scope, args[0])
				})
			}
			var a changed
			err = c.do(cmd.Context(), http.MethodDelete, "/diff/known", scopeQuery(scope, "name", args[0]), nil, &a)
			if err != nil {
				return err
			}
			return c.show(w, a, func() { fmt.Fprintf(w, "%s: %s is not ignored any more\n", scope, args[0]) })
		},
	}
	cmd.AddCommand(add, rm)
	return cmd
}

func (c *remote) parityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "parity", Short: "Test the comparison itself", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "self-test", Short: "Run the controls: each has to find the fault that it injects", Args: cobra.NoArgs,
		Long: `Run the controls: each has to find the fault that it injects.

Exit code: 0 all as expected, 1 one is not, or the gateway could not be asked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var t parity.SelfTest
			if err := c.get(cmd.Context(), selfTestPage, nil, &t); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			err := c.show(w, t, func() {
				for _, k := range t.Controls {
					mark := "ok  "
					if !k.Expected {
						mark = "FAIL"
					}
					fmt.Fprintf(w, "%s  %-20s %s\n", mark, k.Name, k.Detail)
				}
			})
			if err == nil && !t.OK {
				err = &exitError{exitNot, errors.New("a control failed: what the comparison says is worth nothing")}
			}
			return err
		},
	})
	return cmd
}

func (c *remote) evidenceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "evidence", Short: "Collect what a decision rests on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "export [FILE]", Short: "Write it as a tar.gz of JSON files, to FILE or standard output",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.get(cmd.Context(), "/evidence", nil, cmd.OutOrStdout())
			}
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			err = errors.Join(c.get(cmd.Context(), "/evidence", nil, f), f.Close())
			if err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			return nil
		},
	})
	return cmd
}
