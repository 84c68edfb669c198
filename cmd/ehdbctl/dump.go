package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/vfs"
	"github.com/noetl/ehdb-gateway/subjects"
)

// dumpFlags say which records to show.
type dumpFlags struct {
	*storageFlags

	from, to uint64
	key      string
	limit    int
	file     string
}

func dumpCommand(f *storageFlags) *cobra.Command {
	o := dumpFlags{storageFlags: f}
	cmd := &cobra.Command{
		Use:   "dump DIR LOG | dump --file FILE",
		Short: "Show the records of a log, or what is in one file",
		Long: `Show the live records of a log, named by its id or its name (ehdbctl storage stat lists them), or
everything in one file: the header, each block and each record with its offset, also what is deleted.

With --json each record or item is a line; header and data are base64.`,
		Example: `  ehdbctl storage dump data/ehdb '$G/ORDERS' --from 100 --limit 10
  ehdbctl storage dump data/ehdb 5 --key 'orders.*.eu' --json
  ehdbctl storage dump --file data/ehdb/wal/00000000000000000001.seg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.file != "" && len(args) == 0:
				return o.dumpFile(cmd)
			case o.file == "" && len(args) == 2:
				return o.dumpLog(cmd, args[0], args[1])
			case o.file == "" && len(args) == 1:
				return o.noLog(cmd, args[0])
			}
			return fmt.Errorf("give a data directory and a log, or --file and nothing else")
		},
	}
	cmd.Flags().Uint64Var(&o.from, "from", 0, "first sequence")
	cmd.Flags().Uint64Var(&o.to, "to", ^uint64(0), "last sequence")
	cmd.Flags().StringVar(&o.key, "key", "", "only records with this key (subject); * and > are wildcards")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "at most so many records (0: all)")
	cmd.Flags().StringVar(&o.file, "file", "", "show this file: a segment (*.seg), a part (*.part), a manifest or META")
	cmd.Flags().Lookup("to").DefValue = "the last one"
	return cmd
}

// noLog says which logs there are.
func (o *dumpFlags) noLog(cmd *cobra.Command, dir string) error {
	d, err := o.read(cmd, dir)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range d.Logs {
		names = append(names, fmt.Sprintf("%d (%s)", l.ID, l.Name))
	}
	return fmt.Errorf("which log? %s has %s", dir, strings.Join(names, ", "))
}

// findLog returns the log with that id or name.
func findLog(d *inspect.Directory, name string) (*inspect.Log, error) {
	id, noID := strconv.ParseUint(name, 10, 64)
	var found []*inspect.Log
	for _, l := range d.Logs {
		if noID == nil && l.ID == id {
			return l, nil
		}
		if l.Name == name {
			found = append(found, l)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("there is no log %s: ehdbctl storage stat --all %s lists them", name, d.Path)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, l := range found {
		ids = append(ids, strconv.FormatUint(l.ID, 10))
	}
	return nil, fmt.Errorf("several logs are called %s: give one of the ids %s", name, strings.Join(ids, ", "))
}

func (o *dumpFlags) dumpLog(cmd *cobra.Command, dir, name string) error {
	d, err := o.read(cmd, dir)
	if err != nil {
		return err
	}
	l, err := findLog(d, name)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	n := 0
	var failed error
	err = d.Each(cmd.Context(), l, o.from, o.to, func(r *inspect.Record) bool {
		if o.key != "" && !subjects.Match(o.key, string(r.Key)) {
			return true
		}
		if o.json {
			failed = printRecordJSON(w, l, r)
		} else {
			printRecord(w, l, r)
		}
		n++
		return failed == nil && (o.limit <= 0 || n < o.limit)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	return damageOf(cmd, d, l)
}

// damageOf says what of l is not there because it is damaged.
func damageOf(cmd *cobra.Command, d *inspect.Directory, l *inspect.Log) error {
	found := false
	for _, f := range d.Findings {
		for _, a := range f.Affected {
			if f.Severity == inspect.Damage && (a.Log == l.ID || a.Log == 0) {
				fmt.Fprintf(cmd.ErrOrStderr(), "ehdbctl: %s is damaged at offset %d: %s\n",
					f.File, f.Offset, a.String())
				found = true
			}
		}
	}
	if found {
		return errDamage
	}
	return nil
}

// recordLine is a record for machines.
type recordLine struct {
	Log        uint64 `json:"log"`
	Seq        uint64 `json:"seq,omitempty"`
	Time       string `json:"time,omitempty"`
	Key        string `json:"key,omitempty"`
	Header     []byte `json:"header,omitempty"`
	Data       []byte `json:"data"`
	Checkpoint bool   `json:"checkpoint,omitempty"`
}

func printRecordJSON(w io.Writer, l *inspect.Log, r *inspect.Record) error {
	line := recordLine{
		Log: l.ID, Seq: r.Seq, Key: string(r.Key), Header: r.Header, Data: r.Data, Checkpoint: r.Checkpoint,
	}
	if !l.State {
		line.Time = stamp(r.Time)
	}
	return json.NewEncoder(w).Encode(line)
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func printRecord(w io.Writer, l *inspect.Log, r *inspect.Record) {
	switch {
	case !l.State:
		fmt.Fprintf(w, "%d  %s  %s  %s\n", r.Seq, stamp(r.Time), printable(r.Key), size(len(r.Data)))
	case r.Checkpoint:
		fmt.Fprintf(w, "checkpoint  %s\n", size(len(r.Data)))
	default:
		fmt.Fprintf(w, "change  %s\n", size(len(r.Data)))
	}
	for _, part := range [][]byte{r.Header, r.Data} {
		if len(part) == 0 {
			continue
		}
		text := strings.TrimRight(strings.ReplaceAll(printable(part), "\r\n", "\n"), "\n")
		fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(text, "\n", "\n    "))
	}
}

// printable is b as text if it is some, else as hexadecimal digits beside what can be read of it.
func printable(b []byte) string {
	text := utf8.Valid(b)
	for _, r := range string(b) {
		text = text && (strconv.IsPrint(r) || r == '\n' || r == '\r' || r == '\t')
	}
	if text {
		return string(b)
	}
	return hex.Dump(b)
}

func (o *dumpFlags) dumpFile(cmd *cobra.Command) error {
	secrets, err := o.secrets()
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	bad, n := false, 0
	var failed error
	err = inspect.EachItem(vfs.OS{}, filepath.ToSlash(o.file), secrets, func(i inspect.Item) bool {
		bad = bad || i.Bad
		switch {
		case o.json:
			failed = json.NewEncoder(w).Encode(i)
		case i.Bad:
			fmt.Fprintf(w, "%10d  %-12s DAMAGED: %s\n", i.Offset, i.Kind, i.Text)
		default:
			fmt.Fprintf(w, "%10d  %-12s %s\n", i.Offset, i.Kind, i.Text)
		}
		n++
		return failed == nil && (o.limit <= 0 || n < o.limit)
	})
	if err == nil {
		err = failed
	}
	if err == nil && bad {
		err = errDamage
	}
	return err
}
