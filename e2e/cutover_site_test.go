package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// before is a gateway in bus mode shadow in front of servers, and its operator.
type before struct {
	*process
	t     *testing.T
	store string
}

// startShadow starts a gateway in bus mode shadow before servers; pages are their monitoring pages.
func startShadow(t *testing.T, servers, pages []string) *before {
	t.Helper()
	return startShadowWith(t, servers, pages, "")
}

// startShadowWith does that with more keys of bus {}.
func startShadowWith(t *testing.T, servers, pages []string, more string) *before {
	t.Helper()
	quoted := func(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }
	conf := fmt.Sprintf("ehdb { allow_tmp_store: true }\nbus { mode: shadow, profile: drill, upstream: [%s]", quoted(servers))
	if len(pages) > 0 {
		conf += fmt.Sprintf(", monitor: [%s]", quoted(pages))
	}
	store := t.TempDir()
	return &before{startGateway(t, store, "-c", writeFile(t, "shadow.conf", conf+"\n"+more+" }\n")), t, store}
}

// ask asks the operator's API. The error has what it answers.
func (b *before) ask(method, path string, body, to any) error {
	b.t.Helper()
	doc, err := json.Marshal(body)
	noErr(b.t, err)
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.Monitor+face.Base+path, bytes.NewReader(doc))
	noErr(b.t, err)
	token, err := os.ReadFile(filepath.Join(b.store, "ehdb-cutover", face.TokenFile))
	noErr(b.t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, bytes.TrimSpace(answer))
	}
	return json.Unmarshal(answer, to)
}

// forced are the gates that a test of seconds cannot fill. Those about losing and repeating cannot be forced.
var forced = map[string]string{
	"G5": "a test", "G6": "a test", "G7": "a test", "G10": "a test", "G11": "a test", "G12": "a test", "G13": "a test",
	"G14": "a test", "G17": "a test", "G18": "a test", "G20": "a test", "G22": "a test",
}

// flip tries once to move a stream here.
func (b *before) flip(stream string) (m face.Move, err error) {
	b.t.Helper()
	err = b.ask(http.MethodPost, "/flip", map[string]any{
		"by": "test", "reason": "a test", "scope": "$G/" + stream, "retries": 5, "force": forced,
	}, &m)
	return m, err
}

func (b *before) rollback(stream string) (m face.Move, err error) {
	b.t.Helper()
	err = b.ask(http.MethodPost, "/rollback", map[string]any{"by": "test", "reason": "a test", "scope": "$G/" + stream}, &m)
	return m, err
}

// gate returns how a gate stands.
func (b *before) gate(stream, id string) gate.Result {
	b.t.Helper()
	var r gate.Report
	noErr(b.t, b.ask(http.MethodGet, "/gates?scope=$G/"+stream, nil, &r))
	for i := range r.Gates {
		if r.Gates[i].ID == id {
			return r.Gates[i]
		}
	}
	b.t.Fatalf("no gate %s", id)
	return gate.Result{}
}

// stream returns how a stream stands.
func (b *before) stream(name string) (*face.StreamState, error) {
	b.t.Helper()
	var st face.Status
	if err := b.ask(http.MethodGet, "/status", nil, &st); err != nil {
		return nil, err
	}
	for i := range st.Streams {
		if st.Streams[i].Scope.Stream == name {
			return &st.Streams[i], nil
		}
	}
	return nil, fmt.Errorf("%s is not under watch", name)
}

// met makes a condition a try for until.
func met(ok func() bool) func() error {
	return func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	}
}

// until waits until something succeeds.
func until(t *testing.T, what string, limit time.Duration, try func() error) time.Duration {
	t.Helper()
	since := time.Now()
	for {
		err := try()
		took := time.Since(since)
		switch {
		case err == nil:
			return took
		case took > limit:
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
