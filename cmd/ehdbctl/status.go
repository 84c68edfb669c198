package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// watchEvery is how often --watch shows something again.
const watchEvery = 2 * time.Second

func (c *remote) statusCommand() *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show how the streams stand", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			return c.look(cmd.Context(), watchEvery, func(st *face.Status) (bool, error) {
				other := func(s face.StreamState) bool { return !matches(c.scope, s.Scope) }
				st.Streams = slices.DeleteFunc(st.Streams, other)
				err := c.show(w, st, func() { printStatus(w, st) })
				if watch && !c.json {
					fmt.Fprintln(w)
				}
				return watch, err
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds")
	return cmd
}

func printStatus(w io.Writer, st *face.Status) {
	fmt.Fprintf(w, "gateway %s  version %s  bus %s  profile %s  route-epoch %d  as of %s\n", st.Server, st.Version,
		st.Mode, st.Profile, st.Epoch, st.At.Format(time.TimeOnly))
	if st.Verdict != "" {
		fmt.Fprintln(w, st.Verdict)
	}
	if st.Throttle != "" {
		fmt.Fprintln(w, "what is behind is held back:", st.Throttle)
	}
	printLoad(w, "load      ", st.Load)
	if st.Paused != "" {
		fmt.Fprintln(w, "copying is paused, but for streams whose acks wait for it and those with canaries:", st.Paused)
	}
	if h := &st.Hooks; h.Dir != "" {
		fmt.Fprintf(w, "hooks %s: %s%s\n", h.Dir, dash(strings.Join(h.Found, ", ")),
			prefixed("; PROBLEM ", strings.Join(h.Problems, "; ")))
	}
	if len(st.Streams) == 0 {
		fmt.Fprintln(w, "no stream is under watch\nNEXT  ehdbctl plan")
	}
	for i := range st.Streams {
		fmt.Fprintln(w)
		printStream(w, &st.Streams[i], st)
	}
}

func printStream(w io.Writer, s *face.StreamState, st *face.Status) {
	verdict := "not computed"
	if s.Gates != nil {
		verdict = s.Gates.Summary()
	}
	fmt.Fprintf(w, "stream %s  phase %s  route-epoch %d  authority %s  verdict %s\n", s.Scope,
		strings.ToUpper(string(s.Phase)), s.Epoch, s.Authority, verdict)
	if s.Busy != "" {
		fmt.Fprintf(w, "  now       %s\n", s.Busy)
	}
	if p := s.Postponed; p != nil {
		fmt.Fprintf(w, "  postponed since %s by %s%s; given up at %s\n", p.Since.Format(time.DateTime), p.By,
			prefixed(": ", p.Reason), p.Until.Format(time.DateTime))
	}
	if s.Leftover != "" {
		fmt.Fprintf(w, "  leftover  %s\n", s.Leftover)
	}
	if o := s.Observed; o != nil {
		fmt.Fprintf(w, "  observed  %s\n", observedUntil(o, st.At))
		if o.Kept != "" {
			fmt.Fprintf(w, "            NOT ROLLED BACK: %s\n", o.Kept)
			fmt.Fprintf(w, "            roll it back, or say that it is well: ehdbctl flip accept %s\n", s.Scope.Flag())
		}
	}
	ledger := "-" // nothing was acknowledged since the stream came under watch
	if s.Ledger.Last > 0 {
		ledger = fmt.Sprint(s.Ledger.Last)
	}
	fmt.Fprintf(w, "  storage   NATS last %d | EHDB %d | ledger %s   lag %d msgs / %s\n", s.NATS.Last, s.EHDB.Last,
		ledger, s.Copy.LagMessages, short(s.Copy.LagSeconds))
	if s.Copy.Paused != "" {
		fmt.Fprintf(w, "  copying   PAUSED: %s\n", s.Copy.Paused)
	}
	if s.Copy.Throttled != "" {
		fmt.Fprintf(w, "  copying   THROTTLED, what is behind waits: %s\n", s.Copy.Throttled)
	}
	printLoad(w, "  load      ", s.Copy.Load)
	if s.Parity != nil {
		printParity(w, s.Parity, st)
	}
	printLatency(w, s.Latency)
	if !s.Copy.Conserved {
		fmt.Fprintf(w, "  queue     NOT CONSERVED: %d + %d in, %d out, %d pending\n", s.Copy.Enqueued,
			s.Copy.EnqueuedAfterWait, s.Copy.Drained, s.Copy.Pending)
	}
	for i := range s.Canaries {
		c := &s.Canaries[i]
		fmt.Fprintf(w, "  canary    %s served from here since %s: delivered %d, acked to %d, held %d; ",
			c.Consumer, c.Since.Format(time.DateTime), c.Delivered, c.AckFloor, c.Pending)
		fmt.Fprintf(w, "the servers' equal %s ago%s\n", ago(st.At, c.Mirrored), prefixed("; ERROR ", c.Error))
		if len(c.Abort) > 0 {
			fmt.Fprintf(w, "            ended by itself when %s fails twice; failing now: %s\n",
				strings.Join(c.Abort, " or "), cmp.Or(c.Failing, "none"))
		}
	}
	printBack(w, &s.Back)
	if s.Reverse != nil {
		fmt.Fprintf(w, "  reverse   the servers have %d, lag %d msgs / %s  %s%s\n", s.Reverse.Last, s.Reverse.Lag,
			short(s.Reverse.Age), s.Reverse.Paused, s.Reverse.Error)
	}
	if s.LastErr != "" {
		fmt.Fprintf(w, "  error     %s\n", s.LastErr)
	}
	if s.Undo != "" {
		fmt.Fprintf(w, "  UNDO  %s\n", s.Undo)
	}
	if s.Next != "" {
		fmt.Fprintf(w, "  NEXT  %s\n", s.Next)
	}
}

func printLatency(w io.Writer, list []face.Latency) {
	for _, l := range list {
		if l.Kind == "gateway" {
			fmt.Fprintf(w, "  latency   proxy overhead +%s p50, +%s p99  (n %d)\n", short(l.P50), short(l.P99), l.N)
			continue
		}
		fmt.Fprintf(w, "  latency   %-12s %-5s p50 %s  p99 %s  p99.9 %s  (n %d, util %.0f %%)\n", l.Kind, l.Side,
			short(l.P50), short(l.P99), short(l.P999), l.N, 100*l.Utilisation)
	}
}

// printLoad is one line about the load that copying gives way to.
func printLoad(w io.Writer, label string, l *face.LoadState) {
	if l == nil {
		return
	}
	var now []string
	for _, name := range slices.Sorted(maps.Keys(l.Measured)) {
		now = append(now, name+" "+short(l.Measured[name]))
	}
	fmt.Fprintf(w, "%smax %s, critical %s (set by %s%s)   now %s\n", label, dash(l.Max), dash(l.Critical), l.By,
		prefixed(": ", l.Reason), dash(strings.Join(now, ", ")))
}

// observedUntil is one line about the observation of a flip.
func observedUntil(o *face.Observation, now time.Time) string {
	text := "it is over"
	if now.Before(o.Until) {
		text = fmt.Sprintf("for %v more", o.Until.Sub(now).Round(time.Second))
	}
	if len(o.Gates) > 0 {
		text += ", " + strings.Join(o.Gates, ", ")
	}
	return text + "; failing now: " + cmp.Or(o.Failing, "nothing")
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func printBack(w io.Writer, b *face.RollbackCard) {
	switch {
	case !b.Possible:
		fmt.Fprintf(w, "  rollback  n/a: %s\n", b.Why)
	case b.Lossless:
		fmt.Fprintf(w, "  rollback  lossless now: lost 0, at most %d twice, about %s\n", b.Duplicates, short(b.Seconds))
	default:
		fmt.Fprintf(w, "  rollback  NOT lossless now: lost %d, at most %d twice: %s\n", b.Lost, b.Duplicates, b.Why)
	}
}

func printParity(w io.Writer, p *parity.Status, st *face.Status) {
	n := &p.Counts
	parts := []string{}
	for _, s := range parity.States() {
		if v := n.By[s]; v > 0 || s == parity.Match || s.Finding() {
			parts = append(parts, fmt.Sprintf("%s %d", s, v))
		}
	}
	equal := "equal"
	switch {
	case p.Digest.At.IsZero():
		equal = "not compared yet"
	case !p.Digest.Equal:
		equal = "DIFFER"
	}
	if !n.Accounted() {
		equal += "  THE STATES DO NOT ADD UP"
	}
	fmt.Fprintf(w, "  parity    examined %d = %s\n", n.Examined, strings.Join(parts, " + "))
	fmt.Fprintf(w, "            digest %s @%d (%s ago)   window %s, lag p99 %s (n %d)   unacknowledged %d\n", equal,
		p.Digest.Through, ago(st.At, p.Digest.At), short(p.Window), short(p.Lag.P99), p.Lag.N, p.Unacknowledged)
	if p.Error != "" {
		fmt.Fprintf(w, "            CANNOT COMPARE since %s: %s\n", p.ErrorAt.Format(time.TimeOnly), p.Error)
	}
	failed := 0
	for _, t := range st.Controls.Controls {
		if !t.Expected {
			failed++
		}
	}
	fmt.Fprintf(w, "  controls  %d/%d detected (%s ago)\n", len(st.Controls.Controls)-failed, len(st.Controls.Controls),
		ago(st.At, st.Controls.At))
	for i := range p.Consumers {
		r := &p.Consumers[i]
		exact := "exact"
		if !r.Exact {
			exact = fmt.Sprintf("INEXACT (at most %d twice)", r.WorstCase)
		}
		known := fmt.Sprintf("stranded %d, drift %+d", r.Stranded, r.Drift)
		if !r.Known {
			known = "what it was offered is not known"
		}
		fmt.Fprintf(w, "  delivery  %s on %s: %s, pending %d, held %d, %s\n", r.Consumer, r.Side, known, r.NumPending,
			r.AckPending, exact)
	}
}

// short is a time in seconds for people.
func short(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

func ago(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return max(now.Sub(then), 0).Round(time.Second).String()
}

func (c *remote) gatesCommand() *cobra.Command {
	purpose, explain, watch := "flip", "", false
	cmd := &cobra.Command{
		Use: "gates", Short: "Compute whether a stream may be flipped",
		Long: `Compute whether a stream may be flipped (or, with --for complete, whether the way back may be given up).

Exit code: 0 GO, 2 NO-GO, 3 not enough evidence, 1 the gateway could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			for {
				var r gate.Report
				if err := c.get(cmd.Context(), "/gates", scopeQuery(scope, "for", purpose), &r); err != nil {
					return err
				}
				if err := c.show(w, r, func() { printGates(w, &r, explain) }); err != nil {
					return err
				}
				if code := r.Verdict.ExitCode(); code == 0 || !watch || !pause(cmd.Context(), 2*time.Second) {
					if code == 0 {
						return nil
					}
					return &exitError{code: code}
				}
			}
		},
	}
	cmd.Flags().StringVar(&purpose, "for", purpose, "what for: flip or complete")
	cmd.Flags().StringVar(&explain, "explain", "", "show every check of one gate")
	cmd.Flags().BoolVar(&watch, "watch", false, "compute them again every two seconds until they say GO")
	return cmd
}

func printGates(w io.Writer, r *gate.Report, explain string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GATE\tSTATE\tVALUE\tNEEDED\tN\tAGE\tWHAT\tWHY")
	for i := range r.Gates {
		g := &r.Gates[i]
		if explain != "" && !strings.EqualFold(explain, g.ID) {
			continue
		}
		state := string(g.State)
		if g.Forced != "" {
			state += " forced: " + g.Forced
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", g.ID, state, g.Value, g.Threshold, g.N, short(g.Age),
			g.Title, g.Reason)
		if explain == "" {
			continue
		}
		for _, k := range g.Checks {
			fmt.Fprintf(t, "  %s\t%s\t%g\t%s %g\t%d\t%s of %s\t%s\t%s\n", k.Fact, k.State, k.Value, k.Op, k.Threshold,
				k.N, short(k.Age), short(k.MaxAge), k.Source, k.Detail)
		}
		if !g.Forceable {
			fmt.Fprintln(t, "  this gate cannot be forced")
		}
	}
	_ = t.Flush()
	fmt.Fprintf(w, "%s: %s (profile %s, for %s)\n", r.Scope, r.Summary(), r.Profile, r.Purpose)
}

func (c *remote) eventsCommand() *cobra.Command {
	follow, after := false, uint64(0)
	cmd := &cobra.Command{
		Use: "events", Short: "Show what was done and what happened", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for {
				q := map[string][]string{"after": {fmt.Sprint(after)}, "wait": {fmt.Sprint(follow)}}
				var list face.EventList
				err := c.get(cmd.Context(), "/events", q, &list)
				if cmd.Context().Err() != nil {
					return nil //nolint:nilerr // whoever looks has seen enough
				}
				if err != nil {
					return err
				}
				for i := range list.Events {
					after = list.Events[i].ID
					if err := c.printEvent(cmd.OutOrStdout(), &list.Events[i]); err != nil {
						return err
					}
				}
				if len(list.Events) == 0 && !follow {
					return nil
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens")
	cmd.Flags().BoolVar(&follow, "watch", false, "the same")
	cmd.Flags().Uint64Var(&after, "after", 0, "only those behind this number")
	return cmd
}

func (c *remote) printEvent(w io.Writer, e *face.Event) error {
	if !matches(c.scope, e.Scope) {
		return nil
	}
	return c.show(w, e, func() {
		fmt.Fprintf(w, "%d  %s  %-16s %-24s epoch %-5d %s  %s\n", e.ID, e.Time.Format(time.DateTime), e.Kind, e.Scope,
			e.Epoch, e.Text, strings.TrimSpace(e.By+" "+e.Reason))
	})
}
