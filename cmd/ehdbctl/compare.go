package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// followDiff waits for a run that was not there before.
func (c *remote) followDiff(cmd *cobra.Command, scope cutover.Scope, before face.Diff) error {
	last := uint64(0)
	if n := len(before.Runs); n > 0 {
		last = before.Runs[n-1].ID
	}
	for {
		var d face.Diff
		if err := c.get(cmd.Context(), "/diff", scopeQuery(scope), &d); err != nil {
			return err
		}
		if n := len(d.Runs); n > 0 && d.Runs[n-1].ID > last {
			r := &d.Runs[n-1]
			showBar(cmd.ErrOrStderr(), r.Through, r.Of)
			if r.State != "running" {
				return c.ended(cmd, &d)
			}
		}
		if !pause(cmd.Context(), progressEvery) {
			return cmd.Context().Err()
		}
	}
}

// ended shows what a comparison came to, and returns its exit code.
func (c *remote) ended(cmd *cobra.Command, d *face.Diff) error {
	if terminal(cmd.ErrOrStderr()) {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	w := cmd.OutOrStdout()
	if err := c.show(w, d, func() { printDiff(w, d) }); err != nil {
		return err
	}
	return outcome(d)
}

// showBar shows on a terminal how far something is.
func showBar(w io.Writer, done, of uint64) {
	if terminal(w) {
		fmt.Fprintf(w, "\r%s", bar(done, of))
	}
}

// outcome is the exit code of a comparison.
func outcome(d *face.Diff) error {
	n := len(d.Runs)
	if n > 0 && d.Runs[n-1].Part != nil && d.Runs[n-1].Counts.Diverged() > 0 {
		return &exitError{code: exitNoGo}
	}
	switch {
	case d.Status.Counts.Diverged() > 0 || !d.Status.Counts.Accounted():
		return &exitError{code: exitNoGo}
	case n > 0 && d.Runs[n-1].State != "done":
		return &exitError{code: exitNotEnough}
	}
	return nil
}

// compareAll compares a stream, or a part of it, and waits.
func (c *remote) compareAll(cmd *cobra.Command, q *face.DiffRequest) error {
	var before face.Diff
	if err := c.get(cmd.Context(), "/diff", scopeQuery(q.Scope), &before); err != nil {
		return err
	}
	var a changed
	if err := c.post(cmd.Context(), "/diff", q, &a); err != nil {
		return err
	}
	return c.followDiff(cmd, q.Scope, before)
}

// compared waits until everything is compared that was there at the first look.
func (c *remote) compared(cmd *cobra.Command, scope cutover.Scope) error {
	for target := uint64(0); ; {
		var d face.Diff
		if err := c.get(cmd.Context(), "/diff", scopeQuery(scope), &d); err != nil {
			return err
		}
		n := &d.Status.Counts
		through := n.Examined - n.By[parity.Pending]
		looked := !d.Status.At.IsZero()
		if looked && target == 0 {
			target = n.Examined
		}
		showBar(cmd.ErrOrStderr(), through, target)
		if looked && through >= target && !running(&d) {
			return c.ended(cmd, &d)
		}
		if !pause(cmd.Context(), progressEvery) {
			return cmd.Context().Err()
		}
	}
}

// running reports whether a full comparison is under way.
func running(d *face.Diff) bool { return len(d.Runs) > 0 && d.Runs[len(d.Runs)-1].State == "running" }
