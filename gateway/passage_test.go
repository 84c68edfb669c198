package gateway

import (
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// startBefore runs a gateway that passes its clients on to ns.
func startBefore(tb testing.TB, ns *server.Server, o *server.Options) *Server {
	tb.Helper()
	return startBeforeURL(tb, ns.ClientURL(), o)
}

func startBeforeURL(tb testing.TB, at string, o *server.Options) *Server {
	tb.Helper()
	to, err := url.Parse(at)
	check(tb, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(tb, err)
	if o == nil {
		o = &server.Options{}
	}
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	s, err := New(Options{Server: o, Bus: bus.NewRouter(), Upstream: up})
	check(tb, err)
	check(tb, s.Start())
	tb.Cleanup(s.Shutdown)
	return s
}

// through runs a script on a real nats-server and through a gateway on another one.
func through(t *testing.T, sc script, quiet time.Duration) (r result) {
	t.Helper()
	options := func() *server.Options {
		o := &server.Options{}
		if sc.opts != nil {
			o = sc.opts()
		}
		o.DisableShortFirstPing = true // a PING would come at no certain moment
		return o
	}
	a := oracle(t, options())
	limits := options()
	b := startBefore(t, oracle(t, options()), &server.Options{
		DisableShortFirstPing: true, MaxControlLine: limits.MaxControlLine, ClientAdvertise: limits.ClientAdvertise,
	})
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { r.want, r.err = dialogue(a.Addr(), sc, quiet) })
	wg.Go(func() { r.got, err = dialogue(b.Addr(), sc, quiet) })
	wg.Wait()
	check(t, err)
	// What a connection did is counted in another way: the gateway sees what passes, not what upstream makes of it.
	count := regexp.MustCompile(` subs=.*`)
	ended := func(ask func() []string) func() []string {
		return func() (out []string) {
			for _, line := range ask() {
				out = append(out, count.ReplaceAllString(line, ""))
			}
			return out
		}
	}
	r.want = append(r.want, reasons(r.want, ended(func() []string { return theirReasons(a) }))...)
	r.got = append(r.got, reasons(r.got, ended(func() []string { return ourReasons(b) }))...)
	return r
}
