package main

import (
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
				q := face.ShadowRequest{Actor: c.actor(), Scope: scope, Action: sub.use, Rate: n}
				return c.change(cmd, "/shadow", q, sub.what)
			},
		}
		if sub.use != "stop" {
			s.Flags().StringVar(&rate, "rate", "",
				"what is copied a second while the copy is behind: 50MB/s; else bus.copy_rate, with backfill no bound")
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

func (c *remote) throttleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "throttle REASON|off", Short: "Slow copying down, for a reason that the status names",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, what := c.actor(), "copying is slowed down"
			if a.Reason = args[0]; args[0] == "off" {
				a.Reason, what = "", "copying goes on at full speed"
			}
			return c.change(cmd, "/throttle", a, what)
		},
	}
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
	var scope cutover.Scope
	if c.scope != "" {
		var err error
		if scope, err = c.one(cmd.Context()); err != nil {
			return err
		}
	}
	return c.change(cmd, page, face.PauseRequest{Actor: c.actor(), Scope: scope}, what)
}
