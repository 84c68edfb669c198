package main

import (
	"flag"
	"regexp"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestHelpHasEveryFlagOfNATSServer: -h mentions each flag that nats-server understands, but for second names and those it
// does not mention itself.
func TestHelpHasEveryFlagOfNATSServer(t *testing.T) {
	help, _, code := once(t, "--help")
	if code != 0 {
		t.Fatal(code)
	}
	theirs := flag.NewFlagSet("", flag.ContinueOnError)
	none := func() {}
	if _, err := server.ConfigureOptions(theirs, nil, none, none, none); err != nil {
		t.Fatal(err)
	}
	theirs.VisitAll(func(f *flag.Flag) {
		if !regexp.MustCompile(`(?m)[ -]-` + f.Name + `\b`).MatchString(help) {
			t.Errorf("-h does not mention -%s: %s", f.Name, f.Usage)
		}
	})
}
