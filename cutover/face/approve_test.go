package face

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Approve notes who approves.
func (s *stage) Approve(_ context.Context, sc cutover.Scope, by Actor) error {
	s.asked = append(s.asked, ScopedRequest{Actor: by, Scope: sc})
	return nil
}

// Whoever operates cannot approve, and whoever approves can change nothing; without a token of theirs it is said what to
// do.
func TestApproversToken(t *testing.T) {
	approver := strings.Repeat("a", 40)
	serve := func(s *stage, approver string) http.Handler {
		mux := http.NewServeMux()
		for p, h := range Routes(Options{Engine: s, Token: token, Approver: approver}) {
			mux.Handle(p, h)
		}
		return mux
	}
	s := newStage(t)
	h, body := serve(s, approver), `{"scope":"A/B/ORDERS","by":"bob"}`
	for with, want := range map[string]int{"": 401, token: 401, approver[1:]: 401, approver: 200} {
		if code, got := ask(h, "POST", Base+"/approve", body, with); code != want || code == 401 && !strings.Contains(got, ApproverFile) {
			t.Errorf("%q: %d %s", with, code, got)
		}
	}
	if len(s.asked) != 1 || s.asked[0] != any(ScopedRequest{Actor: Actor{By: "bob"}, Scope: scope}) {
		t.Errorf("%+v", s.asked)
	}
	if code, _ := ask(h, "POST", Base+"/approve", `{"scope":"A/B/ORDERS"}`, approver); code != 400 {
		t.Error("nobody approved", code)
	}
	if code, _ := ask(h, "GET", Base+"/approve", "", approver); code != 405 {
		t.Error(code)
	}
	if code, _ := ask(h, "POST", Base+"/flip", body, approver); code != 401 {
		t.Error("who approves has flipped it", code)
	}
	if code, got := ask(serve(s, ""), "POST", Base+"/approve", body, token); code != 501 || !strings.Contains(got, ApproverFile) {
		t.Error(code, got)
	}

	dir := t.TempDir()
	name := filepath.Join(dir, ApproverFile)
	if got, err := ApproverToken(dir, token); got != "" || err != nil {
		t.Error(got, err)
	}
	for text, want := range map[string]string{approver: "", token: "is the operator's token", "short": "holds 5 characters, and a token has at least 32"} {
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ApproverToken(dir, token)
		if want == "" && (got != approver || err != nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}
