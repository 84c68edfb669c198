// Command ehdb-gateway is a NATS server with JetStream that keeps its streams in EHDB. It takes nats-server's flags and
// configuration file, so that it can stand where a nats-server stood.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/config"
)

const program = "ehdb-gateway"

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", program, strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}

// run does what args ask for. Serving ends with a signal or with ctx.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.Load(args, config.Environ)
	if err != nil {
		return err
	}
	switch cfg.Action {
	case config.ShowVersion:
		// Tools look for nats-server's line to learn which features they can count on.
		fmt.Fprintf(stdout, "nats-server: v%s\n%s: %s\n", server.VERSION, program, version())
		return nil
	case config.ShowHelp:
		fmt.Fprint(stdout, usage)
		return nil
	case config.ShowTLSHelp:
		server.PrintTLSHelpAndDie()
		return nil
	case config.CheckFile:
		for _, w := range cfg.Warnings {
			fmt.Fprintf(stderr, "%s: warning: %s\n", program, w)
		}
		fmt.Fprintf(stderr, "%s: configuration file %s is valid (%s)\n", program, cfg.Server.ConfigFile,
			cfg.Server.ConfigDigest())
		return nil
	case config.SendSignal:
		return sendSignal(cfg.Signal)
	case config.Run:
	}
	return serve(ctx, args, cfg)
}

// sendSignal does what -sl says: name, or name=pid, or name=pid file.
func sendSignal(signal string) error {
	name, target, _ := strings.Cut(signal, "=")
	if _, more, tooMany := strings.Cut(target, "="); tooMany {
		return fmt.Errorf("invalid signal parameters: [%s]", more)
	}
	if b, err := os.ReadFile(target); err == nil { //nolint:gosec // the operator's own file
		target = strings.TrimSpace(string(b))
	} else if target != "" && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pid file: %w", err)
	}
	server.SetProcessName(filepath.Base(os.Args[0])) // it may have been put in a nats-server's place
	return server.ProcessSignal(server.Command(name), target)
}

// release is set when a release is built.
var release = ""

// version is the release, else what the build knows about its sources.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if rev := revision(); rev != "" {
		return "devel " + rev
	}
	return "devel"
}

// revision is the commit that the sources are from, if the build knows it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				return s.Value[:7]
			}
		}
	}
	return ""
}
