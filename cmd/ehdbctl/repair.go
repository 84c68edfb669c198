package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/repair"
)

func repairCommand(f *storageFlags) *cobra.Command {
	o := repair.Options{}
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Make a damaged directory one that the gateway opens, with all that verifies",
		Long: `Keep what verifies of a damaged data directory, so that the gateway opens it again, and report what
is lost. The files that are replaced are kept in DIR/quarantine; nothing is deleted. With --out DIR stays as it is,
and the repaired directory is written beside it.

Stop the gateway first, and copy the directory or use --out if there is room: a backup or a replica may have what this
cannot bring back.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			secrets, err := f.secrets()
			if err != nil {
				return err
			}
			p := newProgress(cmd.ErrOrStderr(), "repairing")
			o.Dir, o.Out, o.Secrets, o.Progress = filepath.ToSlash(args[0]), filepath.ToSlash(o.Out), secrets, p.show
			o.Catalog = missingStreams
			report, err := repair.Run(cmd.Context(), o)
			p.done()
			if err != nil {
				return err
			}
			return printRepair(cmd.OutOrStdout(), report, f)
		},
	}
	cmd.Flags().StringVar(&o.Out, "out", "", "leave DIR as it is and write the repaired directory here")
	cmd.Flags().IntVar(&o.Shards, "shards", 0, "number of shards, for a damaged META when no record tells it")
	return cmd
}

func printRepair(w io.Writer, r *repair.Report, f *storageFlags) error {
	left := false
	for i := range r.After {
		left = left || r.After[i].Severity == inspect.Damage
	}
	switch {
	case f.json:
		if err := writeJSON(w, r); err != nil {
			return err
		}
	case !r.Changed():
		fmt.Fprintf(w, "%s: nothing to repair\n", r.Dir)
		printFindings(w, r.After)
	default:
		fmt.Fprintln(w, "found:")
		for i := range r.Before {
			fmt.Fprintln(w, r.Before[i].String())
		}
		fmt.Fprintln(w, "done:")
		for _, a := range r.Actions {
			fmt.Fprintf(w, "  %s: %s\n", a.File, a.What)
		}
		fmt.Fprintf(w, "%s after the repair (what was replaced is in its folder %s):\n", r.Dir, repair.Quarantine)
		printFindings(w, r.After)
	}
	if left {
		return errDamage
	}
	return nil
}
