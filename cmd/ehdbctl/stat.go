package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

func statCommand(f *storageFlags) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "stat DIR",
		Short: "Sum up each stream and each file",
		Long: `Sum up each log (one per stream, named ACCOUNT/STREAM) and each file. Bytes are those of keys, headers
and data. Dead is the share of a log's records on disk that are deleted, whose space has not been given back yet.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.read(cmd, args[0])
			if err != nil {
				return err
			}
			if f.json {
				err = writeJSON(cmd.OutOrStdout(), summaryOf(d))
			} else {
				err = printStat(cmd.OutOrStdout(), d, all)
			}
			if err == nil && d.Damaged() {
				fmt.Fprintln(cmd.ErrOrStderr(), "ehdbctl: the directory is damaged, and what is damaged is not "+
					"counted: see ehdbctl storage verify")
				err = errDamage
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "state logs (consumers, the catalog) too")
	return cmd
}

// summary is the result of stat for machines.
type summary struct {
	Directory string             `json:"directory"`
	Shards    int                `json:"shards"`
	Logs      []inspect.LogStat  `json:"logs"`
	Files     []inspect.FileInfo `json:"files"`
	Segments  []inspect.Segment  `json:"segments"`
	Damaged   bool               `json:"damaged"`
}

func summaryOf(d *inspect.Directory) summary {
	s := summary{
		Directory: d.Path, Shards: d.Shards, Files: d.Files, Segments: d.Segments, Damaged: d.Damaged(),
		Logs: []inspect.LogStat{},
	}
	for _, l := range d.Logs {
		s.Logs = append(s.Logs, d.Stat(l))
	}
	return s
}

//nolint:revive // all is what was asked for
func printStat(w io.Writer, d *inspect.Directory, all bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "LOG\tMESSAGES\tBYTES\tFIRST\tLAST\tPARTS\tSEGMENTS\tDEAD\tSHARDS\t  NAME")
	for _, l := range d.Logs {
		s := d.Stat(l)
		if s.State && !all {
			continue
		}
		first, last := fmt.Sprint(s.FirstSeq), fmt.Sprint(s.LastSeq)
		if s.State {
			first, last = "-", "-"
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%d\t%d\t%.0f %%\t%s\t  %s\n", s.Log, s.Messages, size(s.Bytes), first, last,
			s.Parts, s.Segments, 100*s.DeadRatio, strings.Trim(fmt.Sprint(s.Shards), "[]"), s.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printFiles(w, d)
}

func printFiles(w io.Writer, d *inspect.Directory) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nFILE\tKIND\tSIZE\tUSED\tBLOCKS")
	used := map[string]inspect.Segment{}
	for _, s := range d.Segments {
		used[s.File] = s
	}
	for _, file := range d.Files {
		if s, ok := used[file.Path]; ok {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", file.Path, file.Kind, size(file.Size), size(s.End), s.Blocks)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", file.Path, file.Kind, size(file.Size))
	}
	return t.Flush()
}
