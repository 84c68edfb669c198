package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

func (c *remote) shadowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "shadow", Short: "Keep a copy of a stream, or stop that", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var rate int64
	for _, sub := range []struct{ use, short, what string }{
		{"start", "Begin to copy a stream and to compare it", "the copy begins"},
		{"stop", "Stop copying a stream and remove its copy", "the copy is removed"},
		{"reset", "Remove a stream's copy and fill it anew", "the copy is filled anew"},
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
				q := face.ShadowRequest{Actor: c.actor(), Scope: scope, Action: sub.use, Rate: rate}
				return c.change(cmd, "/shadow", q, sub.what)
			},
		}
		s.Flags().Int64Var(&rate, "rate", 0, "bytes a second for the history; 0: as fast as it goes")
		cmd.AddCommand(s)
	}
	return cmd
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
