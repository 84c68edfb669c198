// Command ehdbctl looks after what an ehdb-gateway keeps on disk (its commands below storage work on files), and moves
// streams between NATS servers and a running gateway (all others ask its monitoring port).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFine   = 0
	exitDamage = 1 // damage was found, or is left after a repair
	exitFailed = 2 // unusable arguments, or what was asked for cannot be read or written
)

// errDamage ends a command that has said what is damaged.
var errDamage = errors.New("damage was found")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does what args ask for and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "ehdbctl",
		Short: "Look after what an ehdb-gateway keeps on disk, and move streams between NATS and EHDB",
		Long: `Look after what an ehdb-gateway keeps on disk ("storage"), and move streams between NATS servers and a
running gateway (all other commands, which ask its monitoring port). Without a command it is "status".

Exit code with a running gateway: 0 done or GO, 1 it could not be done, 2 NO-GO, refused by what was found, or
unusable arguments, 3 not enough evidence. Each command that has others says so. Each change prints how it is
undone (UNDO) and what comes next (NEXT).`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, _, err := cmd.Find([]string{"status"})
			if err != nil {
				return err
			}
			status.SetContext(cmd.Context())
			return status.RunE(status, nil)
		},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(storageCommand())
	new(remote).commands(root)
	err := root.ExecuteContext(ctx)
	var coded *exitError
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errDamage):
		return exitDamage
	case errors.As(err, &coded):
		if coded.err != nil {
			fmt.Fprintf(stderr, "ehdbctl: %v\n", coded.err)
		}
		return coded.code
	}
	fmt.Fprintf(stderr, "ehdbctl: %v\n", err)
	return exitFailed
}

// version is what the build knows about its sources.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 7 {
			return "devel " + s.Value[:7]
		}
	}
	return info.Main.Version
}
