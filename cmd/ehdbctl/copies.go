package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

func (c *remote) shadowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "shadow", Short: "Keep a copy of a stream, or stop that", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	rate := ""
	var load loadFlags
	for _, sub := range []struct{ use, short, what string }{
		{"start", "Begin to copy a stream and to compare it", "the copy begins"},
		{"stop", "Stop copying a stream and remove its copy", "the copy is removed"},
		{"reset", "Remove a stream's copy and fill it anew", "the copy is filled anew"},
		{
			"backfill", "Fill a copy that is behind at another rate, until the gateway ends",
			"the copy is filled at that rate",
		},
	} {
		s := &cobra.Command{
			Use:   sub.use,
			Short: sub.short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				scope, err := c.one(cmd.Context())
				if err != nil {
					return err
				}
				n, err := perSecond(rate)
				if err != nil {
					return err
				}
				q := face.ShadowRequest{
					Actor: c.actor(), Scope: scope, Action: sub.use, Rate: n, Limits: load.given(cmd),
				}
				return c.change(cmd, "/shadow", q, sub.what)
			},
		}
		if sub.use != "stop" {
			s.Flags().StringVar(&rate, "rate", "",
				"what is copied a second while the copy is behind: 50MB/s; else bus.copy_rate, with backfill no bound")
			load.add(s)
		}
		cmd.AddCommand(s)
	}
	return cmd
}

// perSecond takes a number of bytes a second: 50MB/s, 50MiB, 52428800. Nothing is 0.
func perSecond(text string) (int64, error) {
	number := strings.TrimSuffix(text, "/s")
	if number == "" {
		return 0, nil
	}
	unit := int64(1)
	for _, u := range []struct {
		name string
		size int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = n, u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("--rate %s: give bytes a second, as 50MB/s or 64MiB", text)
	}
	return n * unit, nil
}

// loadFlags are the loads that copying gives way to.
type loadFlags struct{ most, critical string }

const (
	mostFlag     = "max-load"
	criticalFlag = "critical-load"
)

func (l *loadFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.most, mostFlag, "",
		"above this load what is behind waits, as pubp99=20ms,lag=5s; off: none")
	cmd.Flags().StringVar(&l.critical, criticalFlag, "", "at this load copying is paused, until resume; off: none")
}

// given are those that were said.
func (l *loadFlags) given(cmd *cobra.Command) (out face.Limits) {
	if cmd.Flags().Changed(mostFlag) {
		out.Max = &l.most
	}
	if cmd.Flags().Changed(criticalFlag) {
		out.Critical = &l.critical
	}
	return out
}

// said is what becomes of copying with those that were given.
func (*loadFlags) said(l *face.Limits) string {
	var parts []string
	off := func(text string) bool { return text == "" || text == face.LoadOff }
	if l.Max != nil {
		what := "copying gives way above " + *l.Max
		if off(*l.Max) {
			what = "the limit --max-load is lifted: copying gives way to no load"
		}
		parts = append(parts, what)
	}
	if l.Critical != nil {
		what := "copying is paused at " + *l.Critical
		if off(*l.Critical) {
			what = "the limit --critical-load is lifted: no load pauses copying"
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, "\n")
}

func (c *remote) throttleCommand() *cobra.Command {
	var load loadFlags
	cmd := &cobra.Command{
		Use:   "throttle [REASON|off]",
		Short: "Hold back what is behind of a stream, or of all, for a reason or above a load",
		Long: `Hold back what is behind of a stream, or without --scope of all: the history that is copied, and
comparisons from the first record on. What is new is copied on. Streams whose acks wait for the copy (work queues,
interest), and those with canaries, are not held back. It outlives a restart.

REASON holds it back until "throttle off". --max-load holds it back by itself while the load is above that, and
--critical-load pauses copying, and ends full comparisons, until "ehdbctl resume". Loads are pubp50 and pubp99 (how long
the servers take to acknowledge publishes), rtt (round trip to them) and lag (of the copies that follow). "off" lifts
them.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, what := face.ThrottleRequest{Actor: c.actor(), Limits: load.given(cmd)}, "what is behind is held back"
			switch {
			case len(args) == 0 && !q.Given() && q.Reason == "":
				return errors.New("give a reason, off, --max-load or --critical-load")
			case q.Given():
				what = load.said(&q.Limits)
				if len(args) > 0 {
					return errors.New("give a reason to hold it back for, or loads; --reason says why these")
				}
			case len(args) > 0 && args[0] == "off":
				q.Off, what = true, "copying goes on at full speed"
			case len(args) > 0:
				q.Reason = args[0]
			}
			var err error
			if q.Scope, err = c.oneOrAll(cmd.Context()); err != nil {
				return err
			}
			return c.change(cmd, "/throttle", q, what)
		},
	}
	load.add(cmd)
	return cmd
}

func (c *remote) pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pause", Short: "Stop copying a stream, or all of them, for a reason that the status names",
		Long: `Stop copying a stream, or without --scope all of them, for a reason (--reason) that the status names. It
outlives a restart. What is published meanwhile stays on the servers, as long as their limits let it, and is copied
after "resume"; a flip is refused until then. Streams whose acks wait for the copy (work queues, interest), and those
with canaries, are copied on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.reason == "" {
				return errors.New("--reason is missing: the status has to name one")
			}
			return c.copying(cmd, "/pause", "copying is paused")
		},
	}
}

func (c *remote) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "resume", Short: "Go on copying after a pause", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.copying(cmd, "/resume", "copying goes on") },
	}
}

// copying changes whether one stream, or all, are copied.
func (c *remote) copying(cmd *cobra.Command, page, what string) error {
	scope, err := c.oneOrAll(cmd.Context())
	if err != nil {
		return err
	}
	return c.change(cmd, page, face.PauseRequest{Actor: c.actor(), Scope: scope}, what)
}

// oneOrAll is the stream that --scope names; none: all.
func (c *remote) oneOrAll(ctx context.Context) (cutover.Scope, error) {
	if c.scope == "" {
		return cutover.Scope{}, nil
	}
	return c.one(ctx)
}
