package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

// storageFlags are those of every storage command.
type storageFlags struct {
	json     bool
	keyFiles []string
}

func storageCommand() *cobra.Command {
	f := &storageFlags{}
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Check, look into and repair a data directory (<store_dir>/ehdb)",
		Long: `Check, look into and repair a data directory: the folder ehdb below a gateway's store_dir.

verify, stat and dump only read. They may be run beside a running gateway: what they show is then a moment of
a directory that changes, and damage is reported only if a second reading confirms it. repair refuses a
directory that a gateway has open.

The key of an encrypted directory (jetstream.key) is taken from the environment variable EHDB_STORAGE_KEY, or from
a file with --key-file.

Exit code: 0 all is well, 1 damage was found (after repair: is left), 2 it could not be done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&f.json, "json", false, "write JSON")
	cmd.PersistentFlags().StringArrayVar(&f.keyFiles, "key-file", nil,
		"file with the key of an encrypted directory (jetstream.key), instead of "+keyEnv+"; again for another to try")
	cmd.AddCommand(verifyCommand(f), statCommand(f), dumpCommand(f), repairCommand(f))
	return cmd
}

// keyEnv is the environment variable with the key of an encrypted directory. A flag would show it to other users.
const keyEnv = "EHDB_STORAGE_KEY"

// secrets returns the keys in the environment and in files. A line feed at a file's end is not part of the key.
func (f *storageFlags) secrets() (out [][]byte, err error) {
	if key := os.Getenv(keyEnv); key != "" {
		out = append(out, []byte(key))
	}
	for _, name := range f.keyFiles {
		b, err := os.ReadFile(name) //nolint:gosec // the operator's own file
		if err != nil {
			return nil, err
		}
		secret := strings.TrimRight(string(b), "\r\n")
		if secret == "" {
			return nil, fmt.Errorf("%s is empty", name)
		}
		out = append(out, []byte(secret))
	}
	return out, nil
}

// read reads the data directory dir.
func (f *storageFlags) read(cmd *cobra.Command, dir string) (*inspect.Directory, error) {
	secrets, err := f.secrets()
	if err != nil {
		return nil, err
	}
	p := newProgress(cmd.ErrOrStderr(), "reading")
	defer p.done()
	return inspect.Read(cmd.Context(), inspect.Options{Dir: filepath.ToSlash(dir), Secrets: secrets, Progress: p.show})
}

// oneDir wants a data directory as the only argument.
func oneDir(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one data directory (a gateway's is <store_dir>/ehdb), not %d arguments", len(args))
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// progress says on a terminal which file is being worked on.
type progress struct {
	w    io.Writer // nil: nobody looks
	verb string
	last time.Time
}

const progressEvery = 200 * time.Millisecond

func newProgress(w io.Writer, verb string) *progress {
	p := &progress{verb: verb, last: time.Now()}
	if terminal(w) {
		p.w = w
	}
	return p
}

// terminal reports whether a person looks at v.
func terminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func (p *progress) show(file string, done int) {
	if p.w == nil || time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s %s (%d done)", p.verb, file, done)
}

func (p *progress) done() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// size is a number of bytes for people.
func size[N int | int64 | uint64](n N) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n)
	for _, u := range []string{"KiB", "MiB", "GiB"} {
		if v /= unit; v < unit {
			return fmt.Sprintf("%.1f %s", v, u)
		}
	}
	return fmt.Sprintf("%.1f TiB", v/unit)
}

// plural is n and the word for it.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
