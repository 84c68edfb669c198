package hook

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder makes a folder of shell scripts, which are executable unless their name ends with a !.
func folder(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		mode := os.FileMode(0o755)
		if bare, cut := strings.CutSuffix(name, "!"); cut {
			name, mode = bare, 0o644
		}
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), mode))
	}
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, timeout time.Duration, scripts map[string]string) *Set {
	t.Helper()
	s, err := Load(folder(t, scripts), timeout)
	check(t, err)
	return s
}

// A program that could not be run when it is needed is an error before.
func TestLoad(t *testing.T) {
	s := load(t, 0, map[string]string{"on-success": "", "on-before-flip": "", "README!": ""})
	if got := s.Found(); !slices.Equal(got, []Event{BeforeFlip, Success}) || s.Timeout() != DefaultTimeout || s.Problems() != nil {
		t.Errorf("%v %v %v", got, s.Timeout(), s.Problems())
	}
	open := folder(t, map[string]string{"on-success": ""})
	check(t, os.Chmod(filepath.Join(open, "on-success"), 0o757))
	for want, dir := range map[string]string{
		"cannot be read":               filepath.Join(t.TempDir(), "none"),
		"on-before-flop is no hook":    folder(t, map[string]string{"on-before-flop": ""}),
		"on-failure is not executable": folder(t, map[string]string{"on-failure!": ""}),
		"can be written by everybody":  open,
		"on-before-flip is no file": func() string {
			d := t.TempDir()
			check(t, os.Mkdir(filepath.Join(d, "on-before-flip"), 0o755))
			return d
		}(),
		"the hook cannot be looked at:": func() string {
			d := t.TempDir()
			check(t, os.Symlink("gone", filepath.Join(d, "on-before-flip")))
			return d
		}(),
	} {
		if _, err := Load(dir, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	var none *Set
	if ran, err := none.Run(t.Context(), &Facts{Event: BeforeFlip}); ran || err != nil || none.Found() != nil {
		t.Error(ran, err)
	}
}

// Facts come by the environment and on standard input, and of the gateway's own environment next to nothing.
func TestFacts(t *testing.T) {
	t.Setenv("EHDB_STORAGE_KEY", "secret")
	out := t.TempDir()
	s := load(t, 0, map[string]string{"on-before-flip": `env >` + out + `/env; cat >` + out + `/in; pwd >` + out + `/dir`})
	f := &Facts{
		Event: BeforeFlip, Scope: "$G/ORDERS", Verb: "flip", Epoch: 1 << 60, FenceMS: 1500, By: "a\x00b\nc", Emergency: true,
		Reason: strings.Repeat("x", 1<<20),
	}
	if ran, err := s.Run(t.Context(), f); !ran || err != nil {
		t.Fatal(ran, err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		check(t, err)
		return string(b)
	}
	for _, want := range []string{
		"EHDB_EVENT=on-before-flip\n", "EHDB_SCOPE=$G/ORDERS\n", "EHDB_VERB=flip\n", "EHDB_EPOCH=1152921504606846976\n",
		"EHDB_FENCE_MS=1500\n", "EHDB_BY=ab\nc\n", "EHDB_EMERGENCY=true\n", "EHDB_PLAN_DIGEST=\n",
	} {
		if !strings.Contains(read("env"), want) {
			t.Errorf("no %q in\n%.2000s", want, read("env"))
		}
	}
	if strings.Contains(read("env"), "secret") {
		t.Error("the gateway's environment is shown")
	}
	var got Facts
	check(t, json.Unmarshal([]byte(read("in")), &got))
	if got != *f {
		t.Errorf("%.500v", got)
	}
	if strings.TrimSpace(read("dir")) != s.Dir() {
		t.Errorf("run in %s", read("dir"))
	}
}

// What becomes of a run is said in words, in time.
func TestRun(t *testing.T) {
	const patience = 300 * time.Millisecond
	for name, c := range map[string]struct {
		script string
		want   string // empty: it lets it pass
		refuse bool
	}{
		"passes":               {script: "echo fine; echo hm >&2"},
		"refuses":              {script: "echo first >&2; printf 'not \\033[31mtoday\\n\\n' >&2; exit 3", want: "not [31mtoday", refuse: true},
		"refuses silently":     {script: "exit 1", want: "exit status 1, and it said nothing on standard error", refuse: true},
		"hangs":                {script: "sleep 60", want: "it did not end within 300ms and was killed"},
		"hangs with children":  {script: "sleep 60 & sleep 60 & wait", want: "it did not end within 300ms"},
		"leaves one running":   {script: "sleep 60 & exit 0"},
		"is killed":            {script: "kill -9 $$", want: "signal: killed"},
		"says much":            {script: "yes 0123456789 | head -c 300000 >&2; echo enough >&2; exit 1", want: "enough", refuse: true},
		"says much in a line":  {script: "head -c 300000 /dev/zero | tr '\\0' z >&2; exit 1", want: strings.Repeat("z", maxReason), refuse: true},
		"does not read":        {script: "exec 0<&-; exit 0"},
		"cannot be understood": {script: "", want: "exec format error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 30 * time.Second
			if strings.HasPrefix(name, "hangs") {
				timeout = patience
			}
			s := load(t, timeout, map[string]string{"on-before-flip": c.script})
			if c.want == "exec format error" {
				check(t, os.WriteFile(s.path(BeforeFlip), []byte("\x00\x01"), 0o755))
			}
			since := time.Now()
			ran, err := s.Run(t.Context(), &Facts{Event: BeforeFlip, Reason: strings.Repeat("x", 1<<20)})
			if took := time.Since(since); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			var e *Error
			switch {
			case !ran:
				t.Error("it was not run")
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &e) || !strings.Contains(e.Reason, c.want) || e.Refused != c.refuse || len(e.Reason) > 600):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// One that was there at the start and is gone does not let anything pass; one that came later is asked.
func TestComesAndGoes(t *testing.T) {
	s := load(t, 0, map[string]string{"on-before-flip": "", "on-before-rollback": ""})
	check(t, os.Remove(s.path(BeforeFlip)))
	check(t, os.Chmod(s.path(BeforeRollback), 0o600))
	for e, want := range map[Event]string{BeforeFlip: "no such file", BeforeRollback: "not executable"} {
		if ran, err := s.Run(t.Context(), &Facts{Event: e}); !ran || err == nil || !strings.Contains(err.Error(), want) {
			t.Error(e, ran, err)
		}
	}
	if len(s.Problems()) != 2 {
		t.Error(s.Problems())
	}
	check(t, os.WriteFile(s.path(BeforeComplete), []byte("#!/bin/sh\necho no >&2; exit 1\n"), 0o755))
	if _, err := s.Run(t.Context(), &Facts{Event: BeforeComplete}); err == nil || err.Error() != "hook on-before-complete: no" {
		t.Error(err)
	}
}

// Whoever has asked and goes away ends it.
func TestCallerGoes(t *testing.T) {
	s := load(t, time.Minute, map[string]string{"on-before-flip": "sleep 60"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if ran, err := s.Run(ctx, &Facts{Event: BeforeFlip}); !ran || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(ran, err)
	}
}
