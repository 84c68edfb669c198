package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are what is typed, by command.
var examples = map[string]string{
	"status":           "ehdbctl status --watch --scope ORDERS",
	"plan":             "ehdbctl plan\nehdbctl plan --out plan.yaml",
	"plan apply":       "ehdbctl plan apply plan.yaml --reason 'change 4711'",
	"gates":            "ehdbctl gates --scope ORDERS\nehdbctl gates --explain G6 --scope ORDERS",
	"events":           "ehdbctl events -f --scope ORDERS",
	"diff create":      "ehdbctl diff create --wait --scope ORDERS\nehdbctl diff create --sample 10 --scope ORDERS",
	"diff resume":      "ehdbctl diff resume --scope ORDERS",
	"diff stop":        "ehdbctl diff stop --scope ORDERS",
	"diff show":        "ehdbctl diff show --scope ORDERS",
	"diff watch":       "ehdbctl diff watch --scope ORDERS",
	"diff findings":    "ehdbctl diff findings --scope ORDERS",
	"diff explain":     "ehdbctl diff explain ORDERS:4711 --token-file /data/ehdb-cutover/operator.token",
	"diff repair":      "ehdbctl diff repair 4711 4712 --scope ORDERS",
	"diff known":       "ehdbctl diff known --scope ORDERS",
	"diff known rm":    "ehdbctl diff known rm old-times --scope ORDERS",
	"diff known add":   "ehdbctl diff known add old-times --first 1 --last 900 --days 7 --reason 'old clocks'",
	"parity self-test": "ehdbctl parity self-test",
	"evidence export":  "ehdbctl evidence export --token-file /data/ehdb-cutover/operator.token",
	"mode":             "ehdbctl mode\nehdbctl mode ehdb --scope ORDERS",
	"shadow backfill":  "ehdbctl shadow backfill --scope ORDERS --rate 50MB/s --max-load pubp99=20ms",
	"shadow start":     "ehdbctl shadow start --scope ORDERS",
	"shadow stop":      "ehdbctl shadow stop --scope ORDERS",
	"shadow reset":     "ehdbctl shadow reset --scope ORDERS",
	"canary add":       "ehdbctl canary add --scope consumer=ORDERS/worker --auto-abort-on G4,G10,G11",
	"canary rm":        "ehdbctl canary rm --scope consumer=ORDERS/worker",
	"flip": "ehdbctl flip --scope ORDERS --dry-run\nehdbctl flip --scope ORDERS --expect DIGEST\n" +
		"ehdbctl flip --scope ORDERS --postpone --hold-window 30m",
	"flip go":       "ehdbctl flip go --scope ORDERS",
	"flip abort":    "ehdbctl flip abort --scope ORDERS",
	"flip accept":   "ehdbctl flip accept --scope ORDERS",
	"rollback":      "ehdbctl rollback --scope ORDERS --dry-run\nehdbctl rollback --scope ORDERS",
	"approve":       "ehdbctl approve --scope ORDERS --token-file approver.token --by bob",
	"complete":      "ehdbctl complete --scope ORDERS --dry-run",
	"drill ls":      "ehdbctl drill ls",
	"drill show":    "ehdbctl drill show 7",
	"drill abandon": "ehdbctl drill abandon 7",
	"throttle": "ehdbctl throttle 'backup until 04:00'\nehdbctl throttle off\n" +
		"ehdbctl throttle --scope ORDERS --max-load pubp99=20ms --critical-load pubp99=200ms",
	"pause":          "ehdbctl pause --scope ORDERS --reason 'the disk is exchanged'",
	"resume":         "ehdbctl resume --scope ORDERS\nehdbctl resume",
	"reverse status": "ehdbctl reverse status",
	"reverse verify": "ehdbctl reverse verify --scope ORDERS",
	"bypass ls":      "ehdbctl bypass ls",
	"bypass fence":   "ehdbctl bypass fence --user app",
	"keda check":     "ehdbctl keda check --scope ORDERS",
	"keda manifest":  "ehdbctl keda manifest --scope ORDERS",
	"doctor":         "ehdbctl doctor",
}

// changes are the commands that the gateway may refuse.
const changes = " flip, flip go, flip abort, flip accept, rollback, approve, complete, shadow backfill, " +
	"shadow start, shadow stop, shadow reset, canary add, canary rm, throttle, pause, resume, plan apply, " +
	"diff create, diff stop, diff repair, diff known add, diff known rm, drill abandon,"

const (
	readCodes   = "Exit code: 0 done, 1 it could not be done."
	changeCodes = "Exit code: 0 done, 1 it could not be done, 2 it was refused, and nothing has changed."
)

// describe gives a command and those below it their examples, and their exit codes where they say nothing of them.
func describe(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		describe(sub)
	}
	if cmd.RunE == nil {
		return
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if e := examples[path]; e != "" && cmd.Example == "" {
		cmd.Example = "  " + strings.ReplaceAll(e, "\n", "\n  ")
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	if !strings.Contains(strings.ToLower(cmd.Long), "exit code") {
		codes := readCodes
		if strings.Contains(changes, " "+path+",") {
			codes = changeCodes
		}
		cmd.Long += "\n\n" + codes
	}
}
