package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// quiets are how long a connection has to say nothing before a step is over: a script whose results differ is run again
// with more patience, since the machine may just have been slow. After 2 s a server has waited enough for a CONNECT.
var quiets = []time.Duration{120 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond}

// script is a dialogue: steps of "name< bytes" that are sent over the connection of that name, opened at its first use.
// After each step the script waits until all connections are quiet. What came is recorded for each connection.
type script struct {
	name  string
	opts  func() *server.Options
	steps []string
}

// oracle runs a real nats-server until the test ends.
func oracle(tb testing.TB, o *server.Options) *server.Server {
	tb.Helper()
	if o == nil {
		o = &server.Options{}
	}
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	ns, err := server.NewServer(o)
	check(tb, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		tb.Fatal("nats-server is not ready")
	}
	tb.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return ns
}

// dialogue runs a script against addr and returns what each connection received, by step.
func dialogue(addr net.Addr, sc script, quiet time.Duration) ([]string, error) {
	conns := map[string]net.Conn{}
	var order, out []string
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i, step := range sc.steps {
		name, text, _ := strings.Cut(step, "< ")
		c := conns[name]
		if c == nil {
			var err error
			c, err = net.Dial("tcp", addr.String())
			if err != nil {
				return nil, err
			}
			conns[name] = c
			order = append(order, name)
			out = append(out, fmt.Sprintf("%d %s> %s", i, name, firstLine(c)))
		}
		for part := range strings.SplitSeq(text, "|") {
			_, _ = c.Write([]byte(part))
			if part != text {
				time.Sleep(20 * time.Millisecond)
			}
		}
		said := make([]string, len(order))
		var wg sync.WaitGroup
		for k, n := range order {
			wg.Go(func() { said[k] = listen(conns[n], quiet) })
		}
		wg.Wait()
		for k, n := range order {
			if said[k] != "" {
				out = append(out, fmt.Sprintf("%d %s> %s", i, n, said[k]))
			}
		}
	}
	return out, nil
}

// firstLine reads one line, the INFO that a server begins with.
func firstLine(c net.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var got []byte
	for b := make([]byte, 1); !bytes.HasSuffix(got, []byte("\r\n")); {
		if _, err := c.Read(b); err != nil {
			return string(got) + "<" + err.Error() + ">"
		}
		got = append(got, b[0])
	}
	return normalise(string(got))
}

// listen reads until there is silence or the end, and normalises what came.
func listen(c net.Conn, quiet time.Duration) string {
	var got bytes.Buffer
	buf := make([]byte, 64<<10)
	for {
		_ = c.SetReadDeadline(time.Now().Add(quiet))
		n, err := c.Read(buf)
		got.Write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset by peer") {
				got.WriteString("<closed>")
			} else {
				got.WriteString("<" + err.Error() + ">")
			}
			break
		}
	}
	return normalise(got.String())
}

// normalise replaces what differs between any two servers.
func normalise(s string) string {
	var out []string
	for line := range strings.SplitAfterSeq(s, "\r\n") {
		doc, ok := strings.CutPrefix(line, "INFO ")
		if !ok {
			out = append(out, line)
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(doc), &m); err != nil {
			out = append(out, line)
			continue
		}
		for _, k := range []string{"server_id", "server_name", "port", "go", "git_commit", "xkey", "nonce", "client_id"} {
			if _, ok := m[k]; ok {
				m[k] = "x"
			}
		}
		delete(m, "git_commit")
		b, _ := json.Marshal(m)
		out = append(out, "INFO "+string(b)+"\r\n")
	}
	return strings.Join(out, "")
}

// result is what a script saw on the two servers.
type result struct {
	want, got []string
	err       error
}

// both runs a script on a real nats-server and on the gateway.
func both(t *testing.T, sc script, quiet time.Duration) (r result) {
	t.Helper()
	var theirs, ours *server.Options
	if sc.opts != nil {
		theirs, ours = sc.opts(), sc.opts()
	}
	if theirs == nil {
		theirs, ours = &server.Options{}, &server.Options{}
	}
	theirs.DisableShortFirstPing, ours.DisableShortFirstPing = true, true // a PING would come at no certain moment
	a, b := oracle(t, theirs), start(t, ours)
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { r.want, r.err = dialogue(a.Addr(), sc, quiet) })
	wg.Go(func() { r.got, err = dialogue(b.Addr(), sc, quiet) })
	wg.Wait()
	r.err = errors.Join(r.err, err)
	r.want = append(r.want, reasons(r.want, func() []string { return theirReasons(a) })...)
	r.got = append(r.got, reasons(r.got, func() []string { return ourReasons(b) })...)
	return r
}

// runParity runs every script on a real nats-server and on the gateway, which serves it itself and then passes it on.
func runParity(t *testing.T, scripts []script) {
	t.Helper()
	runScripts(t, scripts, both)
	t.Run("upstream", func(t *testing.T) { runScripts(t, scripts, through) })
}

// runScripts runs every script as run does, all at once: they spend their time waiting.
func runScripts(t *testing.T, scripts []script, run func(*testing.T, script, time.Duration) result) {
	t.Helper()
	results := make([]result, len(scripts))
	var wg sync.WaitGroup
	gate := make(chan struct{}, 20)
	for i, sc := range scripts {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			for _, quiet := range quiets {
				if results[i] = run(t, sc, quiet); slices.Equal(results[i].want, results[i].got) {
					return
				}
			}
		})
	}
	wg.Wait()
	for i, sc := range scripts {
		t.Run(sc.name, func(t *testing.T) {
			r := results[i]
			check(t, r.err)
			if !slices.Equal(r.want, r.got) {
				t.Errorf("nats-server:\n%s\ngateway:\n%s", show(r.want), show(r.got))
			} else if testing.Verbose() {
				t.Logf("both:\n%s", show(r.want))
			}
		})
	}
}

// reasons returns why the connections of a dialogue ended, sorted.
func reasons(lines []string, ask func() []string) []string {
	want := strings.Count(strings.Join(lines, ""), "> INFO") // each connection begins with one
	var got []string
	for range 200 {
		if got = ask(); len(got) >= want {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for i, r := range got { // which of the two depends on whether something was on its way to the client
		got[i] = strings.Replace(r, string(ReasonReadError), string(ReasonClientClosed), 1)
	}
	slices.Sort(got)
	return got
}

func theirReasons(ns *server.Server) []string {
	z, err := ns.Connz(&server.ConnzOptions{State: server.ConnClosed})
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, c := range z.Conns {
		out = append(out, fmt.Sprintf("%s: %s subs=%d in=%d/%d out=%d/%d", c.Reason, c.Name, c.NumSubs, c.InMsgs, c.InBytes, c.OutMsgs, c.OutBytes))
	}
	return out
}

func ourReasons(s *Server) []string {
	var out []string
	for _, c := range s.ClosedConnections() {
		out = append(out, fmt.Sprintf("%s: %s subs=%d in=%d/%d out=%d/%d", c.Reason, c.Name, c.NumSubs, c.InMsgs, c.InBytes, c.OutMsgs, c.OutBytes))
	}
	return out
}

func show(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  %q\n", l)
	}
	return b.String()
}
