package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

func verifyCommand(f *storageFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read everything and check every checksum and reference",
		Long: `Read all of a data directory: every checksum, every record, and each file against the others. What is
wrong is named with its file and offset, what it means for which stream and sequences, and what can be done. A torn
tail, which is what a crash leaves of a write that was never acknowledged, is told apart from damage and is no error.`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.read(cmd, args[0])
			if err != nil {
				return err
			}
			if f.json {
				err = writeJSON(cmd.OutOrStdout(), verdictOf(d))
			} else {
				printVerdict(cmd.OutOrStdout(), d)
			}
			if err == nil && d.Damaged() {
				err = errDamage
			}
			return err
		},
	}
}

// verdict is the result of verify for machines.
type verdict struct {
	Directory string            `json:"directory"`
	Shards    int               `json:"shards"`
	Segments  int               `json:"segments"`
	Parts     int               `json:"parts"`
	Logs      int               `json:"logs"`
	Records   uint64            `json:"wal_records"`
	Damaged   bool              `json:"damaged"`
	Findings  []inspect.Finding `json:"findings"`
}

func verdictOf(d *inspect.Directory) verdict {
	v := verdict{
		Directory: d.Path, Shards: d.Shards, Segments: len(d.Segments), Parts: len(d.Parts), Logs: len(d.Logs),
		Records: d.Records, Damaged: d.Damaged(), Findings: d.Findings,
	}
	if v.Findings == nil {
		v.Findings = []inspect.Finding{}
	}
	return v
}

func printVerdict(w io.Writer, d *inspect.Directory) {
	var bytes int64
	for _, file := range d.Files {
		bytes += file.Size
	}
	fmt.Fprintf(w, "%s: %s, %s in the write-ahead log with %s, %s, %s, %s\n", d.Path,
		plural(d.Shards, "shard", "shards"), plural(len(d.Segments), "segment", "segments"),
		plural(int(d.Records), "record", "records"), plural(len(d.Parts), "part", "parts"),
		plural(len(d.Logs), "log", "logs"), size(bytes))
	printFindings(w, d.Findings)
}

// printFindings writes findings and counts them.
func printFindings(w io.Writer, all []inspect.Finding) {
	count := map[inspect.Severity]int{}
	for i := range all {
		fmt.Fprintln(w, all[i].String())
		count[all[i].Severity]++
	}
	if count[inspect.Damage] > 0 {
		fmt.Fprintf(w, "DAMAGED: %s\n", plural(count[inspect.Damage], "place", "places"))
		return
	}
	fmt.Fprintf(w, "OK: every checksum and every reference is right")
	if n := count[inspect.Torn]; n > 0 {
		fmt.Fprintf(w, "; %s", plural(n, "torn tail", "torn tails"))
	}
	fmt.Fprintln(w)
}
