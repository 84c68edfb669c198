package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// hostiles is how many bad connections of a kind there are at once.
	hostiles = 200
	// hostileTrips is how many round trips of the good client are measured, before an attack and during it.
	hostileTrips = 300
	// hostileWait bounds the round trip of the good client that 99 of 100 stay under, beyond what it was before.
	hostileWait = 100 * time.Millisecond
	// halfOfUs is the part of the machine that has to be ours for that bound to make sense.
	halfOfUs = 0.5
	// strangerBytes is what a peer that has not logged in may cost in memory, all in all.
	strangerBytes = 192 << 10
	// friendBytes is what one that has may: hostileConf's max_pending, max_payload and buffers.
	friendBytes = 640 << 10
	// hostileLines and hostileLog bound the lines and bytes that an attack adds to the log in a second.
	hostileLines = 1000
	hostileLog   = 1 << 20
)

const hostileConf = `
	authorization {
		timeout: 1
		users: [
			{user: good, password: good}
			{user: bad, password: bad, permissions: {publish: ["may.>"], subscribe: ["may.>"]}}
		]
	}
	max_subscriptions: 100, max_payload: 65536, max_pending: 262144, write_deadline: "1s", max_closed_clients: 1000
	prof_port: -1
`

// TestHostileClients: whatever kind of bad clients there are 200 of, a good client is served as before, and when they are
// gone nothing is left of them. What the server may spend on them while they are there is bounded, the log as well.
func TestHostileClients(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own bounds")
	}
	files := certificate(t)
	for name, front := range map[string]string{
		"plain": "allow_non_tls: true, tls { " + files + `, timeout: 1 }
			websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true, handshake_timeout: "1s" }`,
		"proxied": "proxy_protocol: true",
	} {
		t.Run(name, func(t *testing.T) {
			p := startGateway(t, t.TempDir(), "-c", writeFile(t, "hostile.conf", loose()+hostileConf+front))
			v := newVictim(t, p)
			for _, k := range hostileKinds {
				if k.proxied == (name == "proxied") {
					t.Run(k.name, func(t *testing.T) { v.attack(t, k) })
				}
			}
		})
	}
}

// hostile is a kind of bad client. do acts until the server ends the connection or done is closed.
type hostile struct {
	name     string
	web      bool // connects to the WebSocket port
	proxied  bool // its server expects a proxy's header
	loggedIn bool
	do       func(c net.Conn, done <-chan struct{})
}

// victim is a gateway under attack, with a good client.
type victim struct {
	p        *process
	addr     string // clients
	web      string // WebSocket clients
	profile  string // pprof
	good     *nats.Conn
	routines int   // goroutines without an attack
	heap     int64 // live bytes without one
}

var (
	webLine     = regexp.MustCompile(`Listening for websocket clients on ws://(\S+)`)
	profileLine = regexp.MustCompile(`profiling port: \S+:(\d+)`)
)

func newVictim(t *testing.T, p *process) *victim {
	t.Helper()
	v := &victim{p: p, addr: strings.TrimPrefix(p.URL, "nats://")}
	if m := webLine.FindStringSubmatch(p.Log()); m != nil {
		v.web = m[1]
	}
	m := profileLine.FindStringSubmatch(p.Log())
	if m == nil {
		t.Fatal("no profiling port in the log")
	}
	v.profile = "http://127.0.0.1:" + m[1] + "/debug/pprof/"
	answers := connect(t, p.URL, nats.UserInfo("good", "good"))
	_, err := answers.Subscribe("service", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	noErr(t, err)
	noErr(t, answers.Flush())
	v.good = connect(t, p.URL, nats.UserInfo("good", "good"))
	_ = v.trips(t)
	v.routines, v.heap = v.goroutines(t), v.live(t)
	return v
}

// damage is what bad clients of one kind achieved.
type damage struct {
	before, during time.Duration // round trips of the good client that 99 of 100 stay under
	share          float64       // of the machine that was ours
	heap           int64         // bytes it grew by
	lines, logged  int           // of the log
	took           time.Duration
}

// faults says what of d is beyond the bounds.
func (d damage) faults(k hostile) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	limit := d.patience()
	if d.share >= halfOfUs && d.during > limit {
		say("the good client waited for %v once in a hundred, limit %v", d.during, limit)
	}
	most := int64(strangerBytes)
	if k.loggedIn {
		most = friendBytes
	}
	if d.heap > hostiles*most {
		say("the heap grew by %d KiB for each bad client, limit %d", d.heap>>10/hostiles, most>>10)
	}
	if seconds := int(d.took/time.Second) + 2; d.lines > seconds*hostileLines || d.logged > seconds*hostileLog {
		say("%d lines and %d bytes of log in %v", d.lines, d.logged, d.took)
	}
	return out
}

// patience is how long the good client may wait: on a busy machine it was slow before.
func (d damage) patience() time.Duration { return hostileWait + 4*d.before }

// attack lets bad clients of one kind loose and looks at what they achieve.
func (v *victim) attack(t *testing.T, k hostile) {
	t.Helper()
	logged := v.p.Log()
	d := v.suffer(t, k)
	t.Logf("%+v", d)
	if d.share < halfOfUs {
		t.Logf("the round trip is not judged: others leave %.0f%% of the machine", 100*d.share)
	}
	for _, fault := range d.faults(k) {
		t.Errorf("%s; the log begins with\n%.2000s", fault, strings.TrimPrefix(v.p.Log(), logged))
	}
	await(t, "no goroutine is left", func() bool { return v.goroutines(t) <= v.routines+2 }) // two for HTTP
	await(t, "no memory is kept", func() bool { return v.live(t) <= v.heap+8<<20 })
	noErr(t, v.good.FlushTimeout(5*time.Second))
	if n := v.good.Reconnects; n > 0 {
		t.Errorf("the good client was disconnected %d times", n)
	}
}

// suffer lets bad clients of one kind loose and measures what they achieve.
func (v *victim) suffer(t *testing.T, k hostile) (d damage) {
	t.Helper()
	d.before, d.share = v.trips(t), machineShare()
	begin, logged := time.Now(), v.p.Log()
	stop := make(chan struct{})
	var connected atomic.Int64
	var all sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); all.Wait() })
	defer end()
	for range hostiles {
		all.Go(func() { v.hostile(k, &connected, stop) })
	}
	await(t, "all bad clients have connected", func() bool { return connected.Load() >= hostiles })
	d.during = v.trips(t)
	for range 2 { // the machine may be busy just now
		if d.during > d.patience() {
			d.during = v.trips(t)
		}
	}
	d.heap = v.live(t) - v.heap
	end()
	said := strings.TrimPrefix(v.p.Log(), logged)
	d.lines, d.logged, d.took = strings.Count(said, "\n"), len(said), time.Since(begin)
	return d
}

// TestHostileSuiteCanFail: a server that stands still under attack and one that takes more from a client than the bound are
// found out, and each bound is judged.
func TestHostileSuiteCanFail(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own bounds")
	}
	const careless = `
		authorization { users: [{user: good, password: good}] }
		max_payload: 8MB, max_pending: 64MB, prof_port: -1`
	p := startGateway(t, t.TempDir(), "-c", writeFile(t, "careless.conf", loose()+careless))
	v := newVictim(t, p)
	for want, k := range map[string]hostile{
		"the good client waited": {name: "stops the server", do: func(_ net.Conn, done <-chan struct{}) {
			for rest(done, 20*time.Millisecond) {
				p.Signal(syscall.SIGSTOP)
				time.Sleep(300 * time.Millisecond)
				p.Signal(syscall.SIGCONT)
			}
		}},
		"the heap grew": {name: "a large payload never finished", loggedIn: true, do: func(c net.Conn, done <-chan struct{}) {
			_, _ = io.WriteString(c, connectGood+"PUB foo 8000000\r\n"+strings.Repeat("x", 1<<20))
			<-done
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			d := v.suffer(t, k)
			d.share = 1 // others' work on the machine is no excuse here
			if faults := strings.Join(d.faults(k), "; "); !strings.Contains(faults, want) {
				t.Errorf("%+v: %q, want %s", d, faults, want)
			}
		})
	}
	good := damage{before: time.Millisecond, during: 50 * time.Millisecond, share: 1, heap: 1 << 20, lines: 100, logged: 1 << 10, took: time.Second}
	if faults := good.faults(hostile{}); len(faults) > 0 {
		t.Errorf("nothing is wrong: %q", faults)
	}
	for want, spoil := range map[string]func(*damage){
		"the good client waited": func(d *damage) { d.during = 105 * time.Millisecond },
		"the heap grew":          func(d *damage) { d.heap = hostiles * (strangerBytes + 1) },
		"lines":                  func(d *damage) { d.lines = 4 * hostileLines },
		"bytes of log":           func(d *damage) { d.logged = 4 * hostileLog },
	} {
		d := good
		spoil(&d)
		if faults := d.faults(hostile{}); len(faults) != 1 || !strings.Contains(faults[0], want) {
			t.Errorf("%+v: %q, want %s", d, faults, want)
		}
	}
}

// hostile connects again and again, about once a second, until stop is closed: what is under test is what a bad client costs
// the server, not how many handshakes the machine makes in a second.
func (v *victim) hostile(k hostile, connected *atomic.Int64, stop <-chan struct{}) {
	addr := v.addr
	if k.web {
		addr = v.web
	}
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		connected.Add(1)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		ended := make(chan struct{})
		go func() { // makes do return at the end of the attack
			select {
			case <-stop:
				_ = c.Close()
			case <-ended:
			}
		}()
		k.do(c, stop)
		close(ended)
		_ = c.Close()
		if !rest(stop, time.Duration(500+rand.IntN(1000))*time.Millisecond) {
			return
		}
	}
}

// rest pauses for d; false: done was closed.
func rest(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return false
	case <-time.After(d):
		return true
	}
}

// trips measures round trips of the good client and returns what 99 of 100 stay under.
func (v *victim) trips(t *testing.T) time.Duration {
	t.Helper()
	trips := make([]time.Duration, hostileTrips)
	for i := range trips {
		begin := time.Now()
		if _, err := v.good.Request("service", []byte("x"), 10*time.Second); err != nil {
			t.Fatalf("the good client: %v", err)
		}
		trips[i] = time.Since(begin)
		time.Sleep(time.Millisecond)
	}
	slices.Sort(trips)
	return trips[len(trips)*99/100]
}

// machineShare measures how much of the machine this process gets if it wants all.
func machineShare() float64 {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin, before := time.Now(), used()
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for time.Since(begin) < 100*time.Millisecond {
			}
		})
	}
	all.Wait()
	return float64(used()-before) / float64(time.Since(begin)) / float64(runtime.NumCPU())
}

var (
	routineCount = regexp.MustCompile(`^goroutine profile: total (\d+)`)
	heapCount    = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
)

func (v *victim) goroutines(t *testing.T) int {
	t.Helper()
	return int(v.profiled(t, "goroutine?debug=1", routineCount))
}

// live returns how much of the heap is in use after a collection.
func (v *victim) live(t *testing.T) int64 {
	t.Helper()
	return v.profiled(t, "heap?gc=1&debug=1", heapCount)
}

// profiled returns a figure of a page of the profiler.
func (v *victim) profiled(t *testing.T, page string, figure *regexp.Regexp) int64 {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(v.profile + page)
	noErr(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	noErr(t, err)
	m := figure.FindSubmatch(body)
	if m == nil {
		t.Fatalf("no %v in %.200s", figure, bytes.TrimSpace(body))
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	noErr(t, err)
	return n
}

// certificate makes a key and a certificate for 127.0.0.1 and returns the keys of a tls block that name them.
func certificate(t *testing.T) string {
	t.Helper()
	cert, key := selfSigned(t)
	return fmt.Sprintf("cert_file: %q, key_file: %q", writeFile(t, "cert.pem", cert), writeFile(t, "key.pem", key))
}
