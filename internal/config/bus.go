package config

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/cutover/hook"
	"github.com/noetl/ehdb-gateway/cutover/window"
)

// Bus is the bus {} block: which bus serves the clients, and the NATS servers behind the gateway.
type Bus struct {
	Mode     Mode
	Upstream []*url.URL // the NATS servers, nats:// or tls://
	// ConnectTimeout bounds how long a client waits until a server upstream was found; 0: the default.
	ConnectTimeout time.Duration
	TLS            *tls.Config    // for connections upstream that use it; nil: the system's authorities
	HandshakeFirst bool           // TLS upstream starts before INFO
	ProxyProtocol  bool           // tell the servers upstream where clients come from
	ProxyKey       nkeys.KeyPair  // proves to them that clients come by this gateway; nil: none
	Monitor        []*url.URL     // monitoring pages of the servers upstream
	Drills         bool           // exercises may stop the log, the process and the connections upstream
	Profile        string         // thresholds of the gates: production or drill
	Cutover        bool           // streams are copied from the servers upstream, or are on their way
	Accounts       []BusAccount   // how the gateway itself logs in to them, by name
	CopyRate       int64          // bytes per second while a copy is behind, for each stream; 0: no bound
	Streams        []string       // which streams are copied, * standing for any characters; none: all
	Hooks          *hook.Set      // the operator's programs at the turns of a cutover; nil: none
	Observe        time.Duration  // how long a flip is observed, and taken back if something fails; 0: not at all
	ObserveGates   []string       // the gates that take it back
	OutageLogins   time.Duration  // how long logins are remembered, for when no server can be reached; 0: not at all
	ChangeWindow   window.Windows // when streams may be moved here; none: always
	Waivers        []Waiver       // what need not be comparable (G5)
}

// Waiver lets messages that cannot be compared for a reason not stand against a flip, until it expires.
type Waiver struct {
	Reason, Why string
	Expires     time.Time
}

const (
	defaultOutage   = 24 * time.Hour
	maxOutage       = 30 * 24 * time.Hour
	defaultCopyRate = 64 << 20
	defaultObserve  = time.Minute
	maxObserve      = 24 * time.Hour
)

// defaultBus is what holds without the block.
func defaultBus() Bus {
	return Bus{
		CopyRate: defaultCopyRate, Observe: defaultObserve, ObserveGates: []string{"G4", "G10", "G11"},
		OutageLogins: defaultOutage,
	}
}

const (
	minConnectTimeout = 100 * time.Millisecond
	maxConnectTimeout = time.Minute
)

// bus reads the bus {} block.
func (d *decoder) bus(v any) Bus {
	b := defaultBus()
	var mode string
	var hooks hookKeys
	d.block("bus", v, map[string]func(field){
		"mode":     func(f field) { f.text(&mode, string(ModeEHDB), string(ModeNATS), string(ModeShadow)) },
		"upstream": func(f field) { b.Upstream = f.urls(checkUpstream) },
		"monitor":  func(f field) { b.Monitor = f.urls(checkMonitor) },
		"connect_timeout": func(f field) {
			f.duration(&b.ConnectTimeout, minConnectTimeout, maxConnectTimeout)
		},
		"proxy_protocol": func(f field) { f.boolean(&b.ProxyProtocol) },
		"proxy_key_file": func(f field) { b.ProxyKey = f.seed() },
		"tls":            func(f field) { d.busTLS(f, &b) },
		"accounts":       func(f field) { b.Accounts = f.busAccounts() },
		"copy_rate":      func(f field) { f.size(&b.CopyRate, 0) },
		"streams":        func(f field) { b.Streams = f.streamPatterns() },
		"drills":         func(f field) { f.boolean(&b.Drills) },
		"profile":        func(f field) { f.text(&b.Profile, "production", "drill") },
		"hooks":          func(f field) { hooks.at = f; f.text(&hooks.dir) },
		"observe":        func(f field) { f.duration(&b.Observe, 0, maxObserve) },
		"observe_gates":  func(f field) { b.ObserveGates = f.gates() },
		"outage_logins":  func(f field) { f.duration(&b.OutageLogins, 0, maxOutage) },
		"change_window":  func(f field) { b.ChangeWindow = f.windows() },
		"waivers":        func(f field) { b.Waivers = f.waivers() },
		"hook_timeout":   func(f field) { f.duration(&hooks.timeout, minHookTimeout, maxHookTimeout) },
	})
	b.Hooks = hooks.load()
	b.Mode = Mode(strings.ToLower(mode))
	return b
}

const (
	minHookTimeout = 100 * time.Millisecond
	maxHookTimeout = 10 * time.Minute
)

// hookKeys are the keys about hooks.
type hookKeys struct {
	at      field
	dir     string
	timeout time.Duration
}

// load looks at the folder. A program that could not be run is an error now rather than when it is to refuse something.
func (h *hookKeys) load() *hook.Set {
	if h.dir == "" {
		return nil
	}
	s, err := hook.Load(h.dir, h.timeout)
	if err != nil {
		h.at.errorf("%w", err)
		return nil
	}
	return s
}

// windows takes one or several times in which changes are allowed.
func (f field) windows() (out window.Windows) {
	for _, e := range f.list() {
		var text string
		if e.text(&text); text == "" {
			continue
		}
		w, err := window.Parse(text)
		if err != nil {
			e.errorf("%w", err)
			continue
		}
		out = append(out, w)
	}
	return out
}

// waivers takes one or several of the form "REASON until DAY: why".
func (f field) waivers() (out []Waiver) {
	reasons := []string{"authority_unreadable", "copy_unreadable"} // as cutover/parity has them
	for _, e := range f.list() {
		var text string
		if e.text(&text); text == "" {
			continue
		}
		reason, rest, _ := strings.Cut(text, " until ")
		day, why, _ := strings.Cut(rest, ": ")
		last, err := time.Parse(time.DateOnly, day)
		if err != nil || why == "" || !slices.Contains(reasons, reason) {
			e.errorf(`%q is no waiver: give "REASON until 2026-12-31: why", with one of the reasons %s`, text,
				strings.Join(reasons, " and "))
			continue
		}
		out = append(out, Waiver{Reason: reason, Why: why, Expires: last.AddDate(0, 0, 1)})
	}
	return out
}

// gates takes names of gates that may be asked behind a flip: G1 to G23.
func (f field) gates() []string {
	out := []string{}
	for _, e := range f.list() {
		var id string
		e.text(&id)
		n, err := strconv.Atoi(strings.TrimPrefix(id, "G"))
		const last = 23 // G24 is for completing
		if err != nil || id != fmt.Sprintf("G%d", n) || n < 1 || n > last {
			e.errorf("%q is no gate: there are G1 to G%d", id, last)
			continue
		}
		out = append(out, id)
	}
	return out
}

// busTLS reads bus.tls.
func (d *decoder) busTLS(f field, b *Bus) {
	var o server.TLSConfigOpts
	d.block(f.path, wrapped(f), map[string]func(field){
		"ca_file":         func(f field) { f.text(&o.CaFile) },
		"cert_file":       func(f field) { f.text(&o.CertFile) },
		"key_file":        func(f field) { f.text(&o.KeyFile) },
		"insecure":        func(f field) { f.boolean(&o.Insecure) },
		"handshake_first": func(f field) { f.boolean(&b.HandshakeFirst) },
	})
	cfg, err := server.GenTLSConfig(&o)
	if err != nil {
		f.errorf("%w", err)
		return
	}
	cfg.InsecureSkipVerify = o.Insecure //nolint:gosec // the operator says so
	cfg.RootCAs = cfg.ClientCAs         // here this side is the client
	b.TLS = cfg
}

// seed takes the path of a file with an nkey seed.
func (f field) seed() nkeys.KeyPair {
	var path string
	if f.text(&path); path == "" {
		return nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own file
	if err != nil {
		f.errorf("%w", err)
		return nil
	}
	key, err := nkeys.FromSeed(bytes.TrimSpace(b))
	if err != nil {
		f.errorf("%s does not hold an nkey seed: %w", path, err)
		return nil
	}
	return key
}

// urls takes one URL or a list of them.
func (f field) urls(check func(*url.URL) error) []*url.URL {
	var out []*url.URL
	for _, e := range f.list() {
		var text string
		if e.text(&text); text == "" {
			continue
		}
		at, err := parseURL(text, check)
		if err != nil {
			e.errorf("%w", err)
			continue
		}
		out = append(out, at)
	}
	return out
}

func parseURL(text string, check func(*url.URL) error) (*url.URL, error) {
	at, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL", text) // the error of Parse shows a password
	}
	return at, check(at)
}

// checkUpstream is an error when at is not the URL of a server that clients can be passed on to.
func checkUpstream(at *url.URL) error {
	switch {
	case at.Scheme != "nats" && at.Scheme != "tls" || at.Hostname() == "":
		return fmt.Errorf("%q is not one of nats://host:port and tls://host:port", at.Redacted())
	case at.User != nil:
		return fmt.Errorf("%q has credentials, which would not be used: clients log in with their own", at.Redacted())
	case strings.Trim(at.Path, "/") != "" || at.RawQuery != "":
		return fmt.Errorf("%q: only scheme, host and port mean something here", at.Redacted())
	}
	return nil
}

func checkMonitor(at *url.URL) error {
	if at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
		return fmt.Errorf("%q is not the URL of a monitoring port, such as http://nats:8222", at.Redacted())
	}
	return nil
}

// duration takes a time such as 1500ms, or whole seconds.
func (f field) duration(to *time.Duration, low, high time.Duration) {
	var d time.Duration
	var err error
	switch v := f.val.(type) {
	case string:
		d, err = time.ParseDuration(v)
	case int64:
		d = time.Duration(v) * time.Second
	default:
		err = fmt.Errorf("no duration")
	}
	switch {
	case err != nil:
		f.errorf(`expected a duration such as "1500ms", got %v`, f.val)
	case d < low || d > high:
		f.errorf("%v is not between %v and %v", d, low, high)
	default:
		*to = d
	}
}

// upstreamVariable is the environment's name for bus.upstream.
const upstreamVariable = "EHDB_UPSTREAM"

// chooseUpstream lets the flag, else the environment, have the last word over the file.
func (b *Bus) chooseUpstream(flagged string, lookupEnv func(string) (string, bool)) error {
	list, source := flagged, "the flag --upstream"
	if list == "" {
		list, _ = lookupEnv(upstreamVariable)
		source = upstreamVariable + " in the environment"
	}
	if strings.TrimSpace(list) == "" {
		return nil
	}
	b.Upstream = nil
	for text := range strings.SplitSeq(list, ",") {
		at, err := parseURL(strings.TrimSpace(text), checkUpstream)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		b.Upstream = append(b.Upstream, at)
	}
	return nil
}

// settle settles mode and upstream by flags and environment, and refuses what does not go together.
func (b *Bus) settle(f *flags, lookupEnv func(string) (string, bool)) error {
	if err := b.chooseUpstream(f.upstream, lookupEnv); err != nil {
		return err
	}
	unsaid := ModeEHDB
	if len(b.Upstream) > 0 {
		unsaid = ModeNATS
	}
	mode, err := chooseMode(f.bus, lookupEnv, b.Mode, unsaid)
	if err != nil {
		return err
	}
	if b.Mode = mode; mode != ModeEHDB && len(b.Upstream) == 0 {
		return fmt.Errorf("bus mode %q needs the NATS servers: bus { upstream: [\"nats://host:4222\"] }, --upstream "+
			"or %s", mode, upstreamVariable)
	}
	return nil
}

// Passes reports whether clients are passed on to the NATS servers, which decide about logins: in the modes nats and
// shadow, and in mode ehdb as long as streams are on their way from those servers.
func (b *Bus) Passes() bool { return b.Mode != ModeEHDB || b.Cutover }

// settleBus settles what the rest of the file means in the bus's mode.
func (c *Config) settleBus() error {
	moving, err := c.journalled()
	if err != nil {
		return err
	}
	// Whatever the mode, a stream that is on its way is not forgotten: mode nats brings it back first, mode ehdb takes
	// the rest over.
	c.Bus.Cutover = c.Bus.Mode == ModeShadow || moving && len(c.Bus.Upstream) > 0
	if h := c.Bus.Hooks; h != nil && len(h.Found()) == 0 {
		c.Warnings = append(c.Warnings, "bus.hooks: there is no hook in "+h.Dir())
	}
	if !c.Bus.Passes() {
		return nil
	}
	if c.Bus.Cutover && !c.Server.JetStream {
		return fmt.Errorf("bus mode %q keeps copies of streams here: say where, with jetstream { store_dir: \"DIR\" } "+
			"or -js -sd DIR", c.Bus.Mode)
	}
	return c.passOn()
}

// JournalDir is the folder below store_dir that says which streams are on their way from NATS servers.
const JournalDir = "ehdb-cutover"

// journalled reports whether streams are, or have been, on their way.
func (c *Config) journalled() (bool, error) {
	if !c.Server.JetStream || c.Server.StoreDir == "" {
		return false, nil
	}
	info, err := os.Stat(filepath.Join(c.Server.StoreDir, JournalDir, "cutover.journal"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// passOn settles what the rest of the file means when the servers upstream serve the clients: what those decide is left
// aside here, so that one file does for every mode.
func (c *Config) passOn() error {
	o := c.Server
	if o.ProxyProtocol && c.Bus.ProxyProtocol {
		return errors.New("proxy_protocol and bus.proxy_protocol: the servers upstream would be told the address of " +
			"the proxy in front of this gateway for that of every client; set one of them")
	}
	var aside []string
	for name, used := range map[string]bool{
		"jetstream":          o.JetStream && !c.Bus.Cutover,
		"authorization":      o.Username != "" || o.Authorization != "" || len(o.Users)+len(o.Nkeys) > 0,
		"accounts":           len(o.Accounts) > 0,
		"operator":           len(o.TrustedOperators)+len(o.TrustedKeys) > 0,
		"tls.verify_and_map": o.TLSMap,
	} {
		if used {
			aside = append(aside, name)
		}
	}
	if len(aside) > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("Bus mode %s: the servers upstream decide about logins and keep "+
			"the streams; not used of this configuration: %s", c.Bus.Mode, listed(aside)))
	}
	o.JetStream, o.TLSMap = o.JetStream && c.Bus.Cutover, false
	o.TrustedOperators, o.TrustedKeys, o.AccountResolver = nil, nil, nil
	c.EHDB.AllowStandalone = true // no streams of its own
	if c.Bus.Cutover {
		o.Accounts, o.Users, o.Nkeys, o.Username, o.Password, o.Authorization = nil, nil, nil, "", "", ""
		o.SystemAccount, c.Accounts = "", nil
	}
	return nil
}
