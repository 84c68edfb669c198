package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNATSCLI runs the real nats CLI's commands against both servers and compares what they print where that is JSON or a
// plain value, and that they succeed or fail alike everywhere else.
func TestNATSCLI(t *testing.T) {
	t.Parallel()
	cli, err := filepath.Abs(natsCLI)
	noErr(t, err)
	if _, err := os.Stat(cli); err != nil {
		t.Fatalf("the nats CLI is not built (make tools): %v", err)
	}
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		home := t.TempDir()
		for line := range strings.Lines(cliScript) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			plain, show := strings.CutPrefix(line, "= ")
			out, err := runCLI(cli, home, e.URL, plain)
			if err != nil {
				t.Logf("%s: %s", plain, complaint(err))
			}
			switch {
			case !show:
				tr.Add("%s: %v", plain, err)
			case strings.HasPrefix(out, "{") || strings.HasPrefix(out, "["):
				tr.Raw(plain, []byte(out))
			default:
				tr.Add("%s: %v %s", plain, err, scrub(out))
			}
		}
	})
}

// cliScript holds a command a line; of those with = the output is compared.
const cliScript = `
	stream add S --subjects s.> --defaults
	stream add S --subjects other --defaults
	pub s.a one --jetstream
	pub s.b two -H K:v --jetstream
	pub s.a three --jetstream
	= stream ls -n
	= stream info S --json
	= stream get S 2 --json
	= stream get S -S s.a --json
	stream get S 99
	= stream subjects S --json
	stream add M --mirror S --defaults
	stream add A --source S --defaults
	stream report
	stream rm -f M
	stream rm -f A
	consumer add S C --pull --defaults
	= consumer ls S -n
	= consumer info S C --json
	= consumer next S C --raw
	= consumer next S C --raw --no-ack
	= consumer info S C --json
	consumer add S E --ephemeral --pull --defaults
	consumer rm S E -f
	consumer edit S C --max-pending 50 -f
	= consumer info S C --json
	consumer pause S C 1h -f
	consumer resume S C -f
	stream edit S --max-msgs 2 -f
	= stream info S --json
	= stream rmm S 3 -f
	stream purge S -f
	stream seal S -f
	= stream info S --json
	consumer rm S C -f
	stream rm S -f
	stream info S
	kv add K --history 4
	= kv put K a 1
	= kv create K a 2
	= kv update K a 2 1
	= kv get K a --raw
	kv del K a -f
	kv get K a
	= kv history K a
	= kv ls -n
	kv rm K -f
	object add O
	= object ls -n
	object rm O -f
	account info
	rtt
	server check connection
	server check jetstream
	server check stream --stream NONE
	bench pub x --msgs 1000 --no-progress
	bench service request nobody --msgs 1 --no-progress
	bench js pub sync b --create --msgs 100 --no-progress
	bench js pub async b --create --purge --msgs 1000 --no-progress
	bench js pub atomic b --create --purge --msgs 1000 --batch 100 --no-progress
	bench js pub fast b --create --purge --msgs 1000 --no-progress
	= stream info benchstream --json
	stream rm benchstream -f
`

// complaint is what a command that failed wrote to its standard error.
func complaint(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return strings.TrimSpace(string(exit.Stderr))
	}
	return err.Error()
}

// runCLI runs one command line of the CLI; arguments hold no spaces.
func runCLI(cli, home, url, line string) (string, error) {
	cmd := exec.Command(cli, strings.Fields(line)...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "NATS_URL="+url)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
