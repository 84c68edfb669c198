package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/drill/load"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

// How long the steps of a drill may take. Nobody waits longer, and what was seen by then is reported.
const (
	drillReady   = 90 * time.Second
	drillSteady  = time.Minute
	drillFelt    = 15 * time.Second
	drillRecover = 90 * time.Second
	drillReport  = 2 * time.Minute
	drillSay     = 5 * time.Second // between lines about a load that is stuck
)

// drillFlags are what a drill's load needs.
type drillFlags struct {
	load                 string
	cut                  time.Duration
	url, creds, nkey, ca string
	user, password       string
	wait                 bool
}

func (c *remote) drillCommand() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill " + strings.Join(drill.Kinds, "|"),
		Short: "Exercise a failure under load, as evidence for the gates",
		Long: `Exercise a failure under load, as evidence for the gates. Each drill has a stream of its own, which is
removed at the end; of this command's clients everything is accounted for: what was acknowledged, delivered, confirmed.

  restart-writer  the log's writer is stopped as by a failed sync, and opened again from disk        G12, a day
  kill-gateway    the gateway is killed (SIGKILL), and its supervisor starts it again                G13, a week
  partition       the gateway's connections to the servers are closed, and none is made for --cut    G13, a week
  nats-stepdown   the servers choose another leader; not applicable to a single server               G13, a week
  flip-and-back   a stream is moved there and back                                                   G14, a day

The first three are felt by all clients of the gateway, so it has to be armed: bus { drills: true }. An outcome counts
for the image that was exercised, until it expires. restart-writer takes some 20 ms, so give it a load that meets that:
--load 500/s. Exit code 1: it failed; what could not be measured has failed.`,
		Example: `  ehdbctl drill flip-and-back --scope ORDERS
  ehdbctl drill restart-writer --scope ORDERS --load 500/s --url nats://gateway:4222 --creds load.creds`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.drill(cmd, args[0], &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.load, "load", strconv.Itoa(drill.DefaultLoad), "messages a second: 500 or 500/s")
	fl.DurationVar(&f.cut, "cut", drill.DefaultCut, "how long a partition lasts")
	fl.StringVar(&f.url, "url", env("NATS_URL", nats.DefaultURL), "the gateway's client port, for the load (NATS_URL)")
	fl.StringVar(&f.creds, "creds", env("NATS_CREDS", ""), "credentials file of the load's login (NATS_CREDS)")
	fl.StringVar(&f.nkey, "nkey", env("NATS_NKEY", ""), "file with the seed of its nkey (NATS_NKEY)")
	fl.StringVar(&f.user, "user", env("NATS_USER", ""), "its user name (NATS_USER)")
	fl.StringVar(&f.password, "password", env("NATS_PASSWORD", ""), "its password (NATS_PASSWORD)")
	fl.StringVar(&f.ca, "tlsca", env("NATS_CA", ""), "authorities of the gateway's certificate (NATS_CA)")
	fl.BoolVar(&f.wait, "wait", true, "wait for the end of flip-and-back, and show its steps; the others always are")
	cmd.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "Show the drills, and for how long they count", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return c.drillList(cmd) },
		},
		&cobra.Command{
			Use: "show ID", Short: "Show all that is known of a drill", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				d, err := c.drillNamed(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return writeJSON(cmd.OutOrStdout(), d)
			},
		},
		&cobra.Command{
			Use: "abandon ID", Short: "End a drill whose load is gone: it has failed", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				d, err := c.drillNamed(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				q := c.reportOf(d, drill.Account{Error: "given up by " + c.by})
				if c.dry {
					return c.would(cmd.OutOrStdout(), "/drill/report", q)
				}
				if err := c.post(cmd.Context(), "/drill/report", q, d); err != nil {
					return err
				}
				return c.drillShown(cmd, d)
			},
		},
	)
	return cmd
}

func (c *remote) reportOf(d *face.Drill, a drill.Account) face.DrillReportRequest {
	return face.DrillReportRequest{Actor: c.actor(), ID: d.ID, Account: a}
}

// options are the load's.
func (f *drillFlags) options(d *face.Drill) (load.Options, error) {
	o := load.Options{URL: f.url, Stream: d.Stream, Subject: d.Subject, Consumer: d.Consumer, Rate: d.Load}
	switch {
	case f.creds != "":
		o.Connect = append(o.Connect, nats.UserCredentials(f.creds))
	case f.nkey != "":
		key, err := nats.NkeyOptionFromSeed(f.nkey)
		if err != nil {
			return o, fmt.Errorf("--nkey: %w", err)
		}
		o.Connect = append(o.Connect, key)
	case f.user != "":
		o.Connect = append(o.Connect, nats.UserInfo(f.user, f.password))
	}
	if f.ca != "" {
		o.Connect = append(o.Connect, nats.RootCAs(f.ca))
	}
	return o, nil
}

// drill asks for a drill and carries it out.
func (c *remote) drill(cmd *cobra.Command, kind string, f *drillFlags) error {
	ctx := cmd.Context()
	scope, err := c.one(ctx)
	if err != nil {
		return err
	}
	q := face.DrillRequest{Actor: c.actor(), Scope: scope, Kind: kind}
	if q.Load, err = strconv.Atoi(strings.TrimSuffix(f.load, "/s")); err != nil || q.Load <= 0 {
		return fmt.Errorf("--load %s: give messages a second, as in 500/s", f.load)
	}
	if c.dry {
		return c.would(cmd.OutOrStdout(), "/drill", q)
	}
	d := new(face.Drill)
	if err := c.post(ctx, "/drill", q, d); err != nil {
		return err
	}
	if drill.Loaded(kind) {
		if err := c.loaded(cmd, d, f); err != nil {
			return err
		}
	} else if f.wait {
		if err := c.followDrill(cmd, d, drillReport, func() bool { return d.State != drill.Running }); err != nil {
			return err
		}
	}
	return c.drillShown(cmd, d)
}

// loaded carries out a drill whose load is this command's.
func (c *remote) loaded(cmd *cobra.Command, d *face.Drill, f *drillFlags) error {
	ready := func() bool { return d.State != drill.Running || d.Step == drill.Ready }
	if err := c.followDrill(cmd, d, drillReady, ready); err != nil || d.State != drill.Running {
		return err
	}
	account := c.suffer(cmd, d, f)
	say(cmd, "both sides are compared")
	// The gateway may not be back yet.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), drillReport)
	defer cancel()
	for said := ""; ; {
		err := c.post(ctx, "/drill/report", c.reportOf(d, account), d)
		if err == nil {
			break
		}
		if text := err.Error(); text != said {
			said = text
			say(cmd, "the account waits for the gateway, at most %v: %s", drillReport, text)
		}
		if d.State != drill.Running || !pause(ctx, time.Second) {
			return fmt.Errorf("the account could not be handed over, so the drill fails: %w", err)
		}
		if now, failure := c.drillNamed(ctx, strconv.FormatUint(d.ID, 10)); failure == nil {
			*d = *now
		}
	}
	return c.followDrill(cmd, d, drillReport, func() bool { return d.State != drill.Running })
}

func say(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
}

// suffer runs the load through the fault and returns its account.
func (c *remote) suffer(cmd *cobra.Command, d *face.Drill, f *drillFlags) drill.Account {
	ctx := cmd.Context()
	fail := func(err error) drill.Account { return drill.Account{Error: "not measured: " + err.Error()} }
	o, err := f.options(d)
	if err != nil {
		return fail(err)
	}
	l, err := load.Start(ctx, o)
	if err != nil {
		return fail(err)
	}
	giveUp := func(err error) drill.Account {
		l.Abandon()
		return fail(err)
	}
	say(cmd, "the load runs: %d messages a second on %s", d.Load, d.Stream)
	if err := c.within(cmd, drillSteady, l, l.Steady); err != nil {
		return giveUp(fmt.Errorf("the load does not get to %d messages ahead of the fault: %w", l.Enough(), err))
	}
	say(cmd, "the fault: %s", d.Kind)
	l.Fault()
	q := face.DrillFaultRequest{Actor: c.actor(), ID: d.ID}
	if d.Kind == drill.Partition {
		q.Seconds = f.cut.Seconds()
	}
	if err := c.post(ctx, "/drill/fault", q, d); err != nil {
		return giveUp(err)
	}
	if d.Kind == drill.Partition {
		l.Lasts(d.Fault.Until.Sub(d.Fault.At))
	}
	if d.Kind == drill.Partition || d.Kind == drill.KillGateway {
		if err := c.within(cmd, drillFelt, l, l.Felt); err != nil {
			say(cmd, "no client has lost its connection")
		}
	}
	if err := c.within(cmd, drillRecover, l, l.Recovered); err != nil {
		say(cmd, "it does not work again: %v", err)
	} else {
		say(cmd, "it works again; what is on its way is waited for")
	}
	return l.Finish(ctx)
}

// within waits for something of the load, and says every few seconds why nothing comes through, if nothing does.
func (c *remote) within(
	cmd *cobra.Command, limit time.Duration, l *load.Load, do func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	end := time.Now().Add(limit)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	t := time.NewTicker(drillSay)
	defer t.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-t.C:
		}
		if quiet, why := l.Quiet(); quiet > 0 {
			say(cmd, "nothing comes through since %v: %s; it is waited for %v more",
				quiet.Round(time.Second), why, max(time.Until(end), 0).Round(time.Second))
		}
	}
}

// followDrill keeps d up to date until it is as it is waited for.
func (c *remote) followDrill(cmd *cobra.Command, d *face.Drill, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	step, said := d.Step, ""
	for !ok() {
		if !pause(ctx, 250*time.Millisecond) {
			return fmt.Errorf("drill %d is still %s %s: ehdbctl drill ls", d.ID, d.State, d.Step)
		}
		now, err := c.drillNamed(ctx, strconv.FormatUint(d.ID, 10))
		if err != nil {
			if text := err.Error(); text != said {
				said = text
				say(cmd, "%s", text)
			}
			continue
		}
		if *d = *now; d.Step != step && d.Step != "" {
			step = d.Step
			say(cmd, "%s", step)
		}
	}
	return nil
}

func (c *remote) drillNamed(ctx context.Context, id string) (*face.Drill, error) {
	d := new(face.Drill)
	return d, c.get(ctx, "/drill", url.Values{"id": {id}}, d)
}

// drillShown shows how a drill has ended.
func (c *remote) drillShown(cmd *cobra.Command, d *face.Drill) error {
	w := cmd.OutOrStdout()
	err := c.show(w, d, func() {
		fmt.Fprintf(w, "drill %d %s: %s  %s\n", d.ID, d.Kind, d.State, d.Result)
		if !d.Expires.IsZero() {
			fmt.Fprintf(w, "counts until %s, for %s, image %s\n", d.Expires.Format(time.RFC3339), d.Version, d.Image)
		}
		undoNext(w, "a drill leaves nothing behind but its evidence", "ehdbctl gates "+d.Scope.Flag())
	})
	if err == nil && d.State == drill.Failed {
		err = &exitError{code: exitNot}
	}
	return err
}

// drillList shows the drills, the latest first.
func (c *remote) drillList(cmd *cobra.Command) error {
	var all face.DrillList
	if err := c.get(cmd.Context(), "/drill", nil, &all); err != nil {
		return err
	}
	slices.Reverse(all.Drills)
	w := cmd.OutOrStdout()
	return c.show(w, all, func() { printDrills(w, all.Drills) })
}

func printDrills(w io.Writer, list []face.Drill) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no drill yet")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tDRILL\tSTATE\tAGE\tCOUNTS\tBY\tRESULT")
	for i := range list {
		d := &list[i]
		age, counts := "-", "not yet"
		if d.State != drill.Running {
			age = (time.Duration(d.Age) * time.Second).String()
			counts = "until " + d.Expires.Local().Format(time.DateTime)
		}
		if d.Lapsed != "" {
			counts = "no: " + d.Lapsed
		}
		fmt.Fprintf(t, "%d\t%s\t%s %s\t%s\t%s\t%s\t%s\n", d.ID, d.Kind, d.State, d.Step, age, counts, d.By, d.Result)
	}
	_ = t.Flush()
}
