package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// TestHelpOfCommands: the help of every command has its exit codes and an example, whose flags it has.
func TestHelpOfCommands(t *testing.T) {
	root := &cobra.Command{Use: "ehdbctl"}
	new(remote).commands(root)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd == root || cmd.RunE == nil || cmd.HasSubCommands() && cmd.Example == "" {
			return
		}
		if cmd.Example == "" || !strings.Contains(strings.ToLower(cmd.Long), "exit code") {
			t.Errorf("%s: example %q, help %q", cmd.CommandPath(), cmd.Example, cmd.Long)
		}
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(line)
			found, rest, err := root.Find(words[1:])
			if err != nil || words[0] != "ehdbctl" || found != cmd && found.Parent() != cmd {
				t.Errorf("%s: %q is of %v: %v", cmd.CommandPath(), line, found.CommandPath(), err)
				continue
			}
			for _, w := range rest {
				name, isFlag := strings.CutPrefix(w, "--")
				if isFlag && found.Flag(name) == nil {
					t.Errorf("%s has no %s, as in %q", found.CommandPath(), w, line)
				}
			}
		}
	}
	walk(root)
	for path := range examples {
		if found, _, err := root.Find(strings.Fields(path)); err != nil || found.CommandPath() != "ehdbctl "+path {
			t.Errorf("an example of %q, which is %v: %v", path, found.CommandPath(), err)
		}
	}
}

// TestRunOf: a comparison that met nothing but what was too young says so.
func TestRunOf(t *testing.T) {
	for want, r := range map[string]parity.Run{
		"0 of 200: the other 200 were younger than the window of 5s then": {State: "done", Through: 0, Of: 200},
		"[##############################] 200 of 200 (100 %)":             {State: "done", Through: 200, Of: 200},
		"[###############...............] 100 of 200 (50 %)":              {State: "running", Through: 100, Of: 200},
	} {
		if got := runOf(&r, 5*time.Second); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFlagsOfTheirOwn: what a command does not take is not offered, and approvals have a token of their own.
func TestFlagsOfTheirOwn(t *testing.T) {
	for args, want := range map[string]string{
		"approve": "file with the approvers' token, approver.token", "flip": "file with the operator's token",
		"canary add": "--auto-abort-on", "canary": "all of a stream", "plan apply": "plan apply plan.yaml",
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), append(strings.Fields(args), "--help"), &out, &errs); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d\n%s%s", args, code, out.String(), errs.String())
		}
	}
	var out, errs strings.Builder
	run(t.Context(), []string{"canary", "rm", "--help"}, &out, &errs)
	if strings.Contains(out.String(), "auto-abort-on") {
		t.Error(out.String())
	}
}
