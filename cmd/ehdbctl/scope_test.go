package main

import (
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

// A stream without an account is the one under watch of that name, if there is one; what is printed names the account.
func TestScopeWithoutAccount(t *testing.T) {
	s, ctl := gateway(t)
	s.others = []cutover.Scope{{Account: "APP", Stream: "AUDIT"}, {Account: "A", Stream: "TWICE"}, {Account: "B", Stream: "TWICE"}}
	const twice = "2 accounts have a stream of that name: give one of --scope 'A/TWICE', --scope 'B/TWICE'"
	for _, tc := range []struct {
		args string
		code int
		out  string // in standard output, or in standard error
	}{
		{"gates --scope AUDIT", exitNotEnough, "APP/AUDIT: NOT ENOUGH"},
		{"gates --scope stream=AUDIT", exitNotEnough, "APP/AUDIT: NOT ENOUGH"},
		{"gates --scope $G/AUDIT", exitNotEnough, "$G/AUDIT: NOT ENOUGH"},
		{"gates --scope NONE", exitNotEnough, "$G/NONE: NOT ENOUGH"},
		{"flip --scope AUDIT", 0, "APP/AUDIT: authority EHDB"},
		{"drill flip-and-back --load 500 --scope AUDIT --dry-run", 0, `"scope":"APP/AUDIT"`},
		{"canary add --scope consumer=AUDIT/a2", 0, "UNDO  ehdbctl canary rm --scope 'consumer=APP/AUDIT/a2'"},
		{"canary add --scope consumer=TWICE/a2", exitNot, twice},
		{"shadow stop --scope AUDIT", 0, "UNDO  ehdbctl shadow start --scope 'APP/AUDIT'"},
		{"flip --scope TWICE", exitNot, twice},
		{"diff explain TWICE:7", exitNot, twice},
	} {
		if code, out, errs := ctl(true, strings.Fields(tc.args)...); code != tc.code || !strings.Contains(out+errs, tc.out) {
			t.Errorf("%s: exit %d\n%s%s", tc.args, code, out, errs)
		}
	}
	s.phase, s.asked = face.PhaseEHDB, nil
	if code, _, errs := ctl(true, "rollback", "--scope", "TWICE"); code != exitNot || !strings.Contains(errs, twice) || len(s.asked) > 0 {
		t.Error(code, errs, s.asked)
	}
	if code, out, errs := ctl(true, "rollback", "--scope", "AUDIT"); code != 0 || !strings.Contains(out, "APP/AUDIT: authority NATS") {
		t.Error(code, out, errs)
	}
}
