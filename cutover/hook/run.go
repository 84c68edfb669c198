package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Error says that a program refused, or did not do what it was to do.
type Error struct {
	Event  Event
	Reason string // the last line of its standard error, or what became of it
	// Refused: it ran, and ended with another exit code than 0. Otherwise it could not be run, or did not end in time.
	Refused bool
}

func (e *Error) Error() string { return fmt.Sprintf("hook %s: %s", e.Event, e.Reason) }

// Bounds of a run.
const (
	maxOutput = 4 << 10     // kept of standard error, its end
	maxReason = 500         // bytes of a reason
	waitPipes = time.Second // for output, once it has ended or was killed
)

// Run runs the program of f.Event and waits for it, until ctx ends at the latest. ran is false when there is none. An
// error that is not an *Error is ctx's.
func (s *Set) Run(ctx context.Context, f *Facts) (ran bool, err error) {
	if s == nil || !s.has(f.Event) {
		return false, nil
	}
	fail := func(format string, args ...any) *Error {
		return &Error{Event: f.Event, Reason: fmt.Sprintf(format, args...)}
	}
	if err := s.runnable(f.Event); err != nil {
		return true, fail("%s", err)
	}
	doc, env, err := f.encode()
	if err != nil {
		return true, fail("%s", err)
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	said := &tail{}
	cmd := s.command(bounded, f.Event, append(inherited(), env...), doc, said)
	if err := cmd.Start(); err != nil {
		return true, fail("%s", err)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left running, if anything
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case bounded.Err() != nil:
		return true, fail("it did not end within %v and was killed", s.timeout)
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // its exit code was 0, something it started held its output
		return true, nil
	case errors.As(err, &exit) && exit.Exited():
		e := fail("%s", said.reason(exit.String()))
		e.Refused = true
		return true, e
	}
	return true, fail("%s", said.reason(err.Error()))
}

// command is the program of an event in a process group of its own, which is killed when ctx ends.
func (s *Set) command(ctx context.Context, e Event, env []string, in []byte, said *tail) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.path(e)) //nolint:gosec // the operator's own program
	cmd.Dir, cmd.Env, cmd.Stdin = s.dir, env, bytes.NewReader(in)
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitPipes
	return cmd
}

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

// Write implements io.Writer. It never fails, so nobody waits for room.
func (t *tail) Write(b []byte) (int, error) {
	t.end = append(t.end, b[max(0, len(b)-maxOutput):]...)
	if over := len(t.end) - maxOutput; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(b), nil
}

// reason is the last line that says something; otherwise if there is none.
func (t *tail) reason(otherwise string) string {
	text := strings.TrimSpace(string(t.end))
	line := text[strings.LastIndexByte(text, '\n')+1:]
	line = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, line)
	if line == "" {
		return otherwise + ", and it said nothing on standard error"
	}
	return strings.ToValidUTF8(line[:min(len(line), maxReason)], "")
}
