package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

// Exit codes of the commands that talk to a running gateway.
const (
	exitNot       = 1 // it could not be done: the gateway cannot be reached, or refused
	exitNoGo      = 2 // the gates say no
	exitNotEnough = 3 // the gates cannot say yet
)

// exitError is an error with an exit code of its own. Without err nothing more is to be said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// remote are the flags of the commands that talk to a running gateway.
type remote struct {
	server, tokenFile, scope, by, reason string
	json, dry                            bool
}

// commands adds all of them.
func (c *remote) commands(root *cobra.Command) {
	list := []*cobra.Command{
		c.statusCommand(), c.planCommand(), c.gatesCommand(), c.eventsCommand(), c.diffCommand(), c.parityCommand(),
		c.evidenceCommand(), c.modeCommand(), c.shadowCommand(), c.canaryCommand(), c.flipCommand(),
		c.rollbackCommand(),
		c.completeCommand(), c.approveCommand(), c.drillCommand(), c.throttleCommand(), c.pauseCommand(),
		c.resumeCommand(),
		c.reverseCommand(), c.bypassCommand(),
		c.kedaCommand(), c.doctorCommand(),
	}
	root.AddGroup(&cobra.Group{ID: "cutover", Title: "Moving streams between NATS and EHDB, with a running gateway:"})
	for _, cmd := range list {
		cmd.GroupID = "cutover"
		f := cmd.PersistentFlags()
		f.StringVar(&c.server, "server", env("EHDB_SERVER", "http://127.0.0.1:8222"),
			"the gateway's monitoring port (EHDB_SERVER)")
		c.tokenFlag(cmd, "file with the operator's token, "+face.TokenFile+
			" in the gateway's data directory (EHDB_TOKEN_FILE)")
		f.StringVar(&c.scope, "scope", "",
			"stream: ACCOUNT/STREAM, or STREAM where one account has it; * stands for any")
		f.BoolVar(&c.json, "json", false, "write JSON")
		f.BoolVar(&c.dry, "dry-run", false, "change nothing, only show what would be done")
		f.StringVar(&c.reason, "reason", "", "why, for the gateway's events")
		f.StringVar(&c.by, "by", whoami(), "who, for the gateway's events")
		root.AddCommand(coded(cmd))
		watch(cmd)
		describe(cmd)
	}
}

// tokenFlag gives a command, and those below it, --token-file, unless it has one.
func (c *remote) tokenFlag(cmd *cobra.Command, usage string) {
	if f := cmd.PersistentFlags(); f.Lookup("token-file") == nil {
		f.StringVar(&c.tokenFile, "token-file", os.Getenv("EHDB_TOKEN_FILE"), usage)
	}
}

// coded gives the errors of a command and those below it the exit code 1, unless they have one.
func coded(cmd *cobra.Command) *cobra.Command {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var has *exitError
			if err == nil || errors.As(err, &has) {
				return err
			}
			return &exitError{exitNot, err}
		}
	}
	for _, sub := range cmd.Commands() {
		coded(sub)
	}
	return cmd
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return env("USER", "unknown")
}

// do asks the gateway: v takes the answer, which may be an io.Writer.
func (c *remote) do(ctx context.Context, method, page string, query url.Values, body, v any) error {
	var data io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		data = bytes.NewReader(b)
	}
	at := strings.TrimSuffix(c.server, "/") + face.Base + page
	if !strings.Contains(c.server, "://") {
		at = "http://" + at
	}
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, at, data)
	if err != nil {
		return err
	}
	if c.tokenFile != "" {
		b, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b)))
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("the gateway cannot be asked (--server is its monitoring port): %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK && (page != selfTestPage || res.StatusCode != http.StatusServiceUnavailable) {
		return refusal(res)
	}
	if w, ok := v.(io.Writer); ok {
		_, err = io.Copy(w, res.Body)
		return err
	}
	if err := json.NewDecoder(res.Body).Decode(v); err != nil {
		return fmt.Errorf("the answer of %s is not JSON: %w", at, err)
	}
	return nil
}

const selfTestPage = "/parity/self-test"

func refusal(res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return err
	}
	var p struct{ Error, Kind string }
	switch {
	case json.Unmarshal(b, &p) == nil && p.Error != "" && p.Kind == "unauthorized":
		return fmt.Errorf("%s (give it with --token-file)", p.Error)
	case p.Kind == "not_enough": // nothing speaks against it, and not all that has to speak for it does yet
		return &exitError{exitNotEnough, errors.New(p.Error)}
	case p.Kind == "refused": // by the gates, a hook, a fence that took too long: nothing has changed
		return &exitError{exitNoGo, errors.New(p.Error)}
	case p.Error != "":
		return errors.New(p.Error)
	case res.StatusCode == http.StatusNotFound:
		return errors.New("this server knows nothing of a cutover: is it an ehdb-gateway in bus mode shadow?")
	}
	return fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(b))
}

func (c *remote) get(ctx context.Context, page string, query url.Values, v any) error {
	return c.do(ctx, http.MethodGet, page, query, nil, v)
}

func (c *remote) post(ctx context.Context, page string, body, v any) error {
	return c.do(ctx, http.MethodPost, page, nil, body, v)
}

func (c *remote) status(ctx context.Context) (*face.Status, error) {
	st := new(face.Status)
	return st, c.get(ctx, "/status", nil, st)
}

func (c *remote) actor() face.Actor { return face.Actor{By: c.by, Reason: c.reason} }

// one is the stream that --scope names.
func (c *remote) one(ctx context.Context) (cutover.Scope, error) {
	name := strings.TrimPrefix(c.scope, "stream=")
	switch kind, _, _ := strings.Cut(name, "="); {
	case name == "":
		return cutover.Scope{}, errors.New("--scope is missing: which stream?")
	case kind == "consumer" || kind == "subject":
		return cutover.Scope{}, fmt.Errorf("--scope %s: this is done to whole streams: a stream's messages have one "+
			"sequence, which subjects and consumers share (one consumer: ehdbctl canary)", c.scope)
	}
	if !strings.Contains(name, "*") {
		return c.named(ctx, name)
	}
	st, err := c.status(ctx)
	if err != nil {
		return cutover.Scope{}, err
	}
	var found []cutover.Scope
	for i := range st.Streams {
		if matches(name, st.Streams[i].Scope) {
			found = append(found, st.Streams[i].Scope)
		}
	}
	if len(found) != 1 {
		return cutover.Scope{}, fmt.Errorf("--scope %s: %d streams match, and this is done to one at a time", name,
			len(found))
	}
	return found[0], nil
}

// named is the stream of that name, as underWatch.
func (c *remote) named(ctx context.Context, name string) (cutover.Scope, error) {
	scope, err := cutover.ParseScope(name)
	if err != nil || strings.Contains(name, "/") {
		return scope, err
	}
	st, err := c.status(ctx)
	if err != nil {
		return scope, err
	}
	return underWatch(st, name)
}

// underWatch is the stream of that name. Without an account it is the one under watch, whatever its account; one of $G
// if none is.
func underWatch(st *face.Status, name string) (cutover.Scope, error) {
	scope, err := cutover.ParseScope(name)
	if err != nil || strings.Contains(name, "/") {
		return scope, err
	}
	var found []string
	for i := range st.Streams {
		if s := st.Streams[i].Scope; s.Stream == scope.Stream {
			scope, found = s, append(found, s.Flag())
		}
	}
	if len(found) > 1 {
		return scope, fmt.Errorf("--scope %s: %d accounts have a stream of that name: give one of %s", name,
			len(found), strings.Join(found, ", "))
	}
	return scope, nil
}

// matches tells whether a stream is meant by what --scope says.
func matches(name string, s cutover.Scope) bool {
	name = strings.TrimPrefix(name, "stream=")
	if name == "" {
		return true
	}
	for _, full := range []string{s.String(), s.Stream} {
		if ok, err := path.Match(name, full); ok && err == nil {
			return true
		}
	}
	return false
}

func scopeQuery(s cutover.Scope, more ...string) url.Values {
	q := url.Values{"scope": {s.String()}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

// show writes v as JSON with --json, else what people read.
func (c *remote) show(w io.Writer, v any, people func()) error {
	if c.json {
		return writeJSON(w, v)
	}
	people()
	return nil
}

// changed is the answer to a change.
type changed struct {
	Done bool   `json:"done"`
	Undo string `json:"undo,omitempty"`
	Next string `json:"next,omitempty"`
}

// change asks for a change and says how it is undone and what comes next.
func (c *remote) change(cmd *cobra.Command, page string, body any, what string) error {
	if c.dry {
		return c.would(cmd.OutOrStdout(), page, body)
	}
	var a changed
	if err := c.post(cmd.Context(), page, body, &a); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	return c.show(w, a, func() {
		fmt.Fprintln(w, what)
		undoNext(w, a.Undo, a.Next)
	})
}

// would says what would be asked for.
func (c *remote) would(w io.Writer, page string, body any) error {
	if c.json {
		return writeJSON(w, body)
	}
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "would ask the gateway: POST %s%s %s\n", face.Base, page, doc)
	return err
}

// confirm asks on a terminal for the name of a stream. A program has confirmed by its flags.
func confirm(cmd *cobra.Command, s cutover.Scope) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !terminal(in) || !terminal(cmd.ErrOrStderr()) {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "type the stream's name, %s, to go on: ", s.Stream)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err == nil && strings.TrimSpace(line) != s.Stream {
		err = errors.New("that is another name: nothing was done")
	}
	return err
}

func undoNext(w io.Writer, undo, next string) {
	if undo == "" {
		undo = "nothing undoes this"
	}
	fmt.Fprintln(w, "UNDO ", undo)
	if next == "" {
		next = "ehdbctl status"
	}
	fmt.Fprintln(w, "NEXT ", next)
}

// pause waits, and says whether ctx still stands.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
