package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/feed"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/gateway/system"
	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/logging"
	"github.com/noetl/ehdb-gateway/internal/metrics"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// app is a running server: its parts, in the order in which they start.
type app struct {
	args    []string // the command line, which a reload reads again
	reloads sync.Mutex
	cfg     *config.Config
	log     *logging.Logger
	fs      vfs.FS // of the data directory; nil: the operating system's
	router  *bus.Router
	metrics *metrics.Metrics
	links   *accounts.Registry
	system  atomic.Pointer[system.Service] // nil: not up, or there is none
	core    core
	gw      *gateway.Server
	nats    *upstreams // nil: this server serves the clients itself
	mover   *mover     // nil: no stream is on its way from or to nats
	cut     *drill.Cut // the network to the servers; nil: drills may not cut it
	streams *streams   // nil: JetStream is off
	tenants *operator  // nil: not in operator mode
	monitor *monitor.Server
	feeds   *feed.Server // nil: off
	profile *http.Server
	ports   string // the ports file

	deposed chan error // why the server has to stop by itself; holds one
}

// serve runs the server until a signal or the end of ctx stops it.
func serve(ctx context.Context, args []string, cfg *config.Config) error {
	limitMemory()
	log, err := newLogger(cfg)
	if err != nil {
		return err
	}
	a := &app{
		args: args, cfg: cfg, log: log, router: bus.NewRouter(), metrics: metrics.New(), deposed: make(chan error, 1),
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	defer signal.Stop(signals)
	starting, stopped := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stopped()
	if err := a.start(starting); err != nil {
		interrupted := starting.Err() != nil
		err = errors.Join(err, a.stop())
		if interrupted {
			return nil
		}
		if cfg.Server.LogFile != "" || cfg.Server.Syslog || cfg.Server.RemoteSyslog != "" { // main tells standard error
			a.log.Error("Start failed: {error}", slog.Any("error", err))
		}
		return err
	}
	a.log.Info("Server is ready")
	why := a.wait(ctx, signals)
	a.log.Info("Initiating Shutdown...")
	err = a.stop()
	if err != nil {
		a.log.Error("Shutdown was not clean", slog.Any("error", err))
	}
	a.log.Info("Server Exiting..")
	return errors.Join(why, err, a.log.Close())
}

func newLogger(cfg *config.Config) (*logging.Logger, error) { return logging.New(logOptions(cfg)) }

// logOptions is what a configuration says of the log.
func logOptions(cfg *config.Config) logging.Options {
	o := cfg.Server
	return logging.Options{
		File: o.LogFile, SizeLimit: o.LogSizeLimit, MaxFiles: o.LogMaxFiles,
		Syslog: o.Syslog, RemoteSyslog: o.RemoteSyslog,
		Time: o.Logtime, UTC: o.LogtimeUTC, Debug: o.Debug, Trace: o.Trace, JSON: cfg.EHDB.LogFormat == "json",
	}
}

// start brings the parts up one after the other. What was started before an error is for stop to end.
func (a *app) start(ctx context.Context) error {
	o := a.cfg.Server
	tenants, err := newOperator(a.cfg, a.log.Logger)
	if err != nil {
		return err
	}
	gwo := gateway.Options{
		Server: o, Bus: a.router, Logger: a.log.Logger, JetStream: o.JetStream, GitCommit: revision(), Observer: a,
		Limits: connLimits(a.cfg), TopTalkers: a.cfg.EHDB.TopTalkers, TopSubjectTokens: a.cfg.EHDB.TopTokens,
		Identity: a.identity,
	}
	if tenants != nil {
		a.tenants, gwo.Accounts = tenants, tenants.accounts
	}
	if a.nats, err = newUpstreams(a); err != nil {
		return err
	}
	if a.nats != nil {
		gwo.Upstream = a.nats
	}
	if a.mover = newMover(a); a.mover != nil {
		gwo.Director, gwo.Memory = a.mover.relay, newMemory(&a.cfg.Bus)
	}
	gw, err := gateway.New(gwo)
	if err != nil {
		return err
	}
	a.gw, a.core = gw, core{gw: gw, router: a.router, streams: a.jetStreamAccounts, claims: a.claims}
	a.links = newLinks(a)
	a.banner()
	if a.nats != nil {
		a.nats.serve(gw)
	}
	if o.JetStream {
		a.streams = newStreams(a)
	}
	// The monitor comes first: probes and scrapes get an answer while streams are being recovered.
	if err := a.startMonitor(); err != nil {
		return err
	}
	if err := a.startProfiler(); err != nil {
		return err
	}
	if a.streams != nil {
		if err := a.streams.start(ctx); err != nil {
			return fmt.Errorf("can't start JetStream: %w", err)
		}
	}
	if a.mover != nil {
		if err := a.mover.open(ctx); err != nil {
			return err
		}
	}
	if err := a.startTenants(); err != nil {
		return err
	}
	if err := a.startSystem(); err != nil {
		return err
	}
	a.openMetrics()
	if err := a.gw.Start(); err != nil {
		return err
	}
	a.ports = portsFile(o.PortsFileDir)
	if err := a.writePorts(); err != nil {
		a.complain(err)
		a.ports = ""
	}
	// Not before the data directory is locked: a second process must not put its id in the place of the first one's.
	return writePid(o.PidFile)
}

// writePorts writes the ports file.
func (a *app) writePorts() error {
	return writePorts(a.ports, a.cfg.Server, known(a.gw.Addr()), known(a.gw.WebsocketAddr()), a.monitorAddr())
}

// startTenants serves what operator mode adds.
func (a *app) startTenants() error {
	if a.tenants == nil {
		return nil
	}
	if a.streams != nil {
		if err := a.tenants.serveStreams(a.streams); err != nil {
			return err
		}
	}
	return a.tenants.serve(a)
}

// jetStreamAccounts returns the names of the accounts with JetStream.
func (a *app) jetStreamAccounts() []string {
	if a.streams == nil {
		return nil
	}
	return a.streams.svc.Accounts()
}

// claims returns an account of operator mode, nil if there is none.
func (a *app) claims(account string) *auth.Account {
	if a.tenants == nil {
		return nil
	}
	return a.tenants.accounts.Loaded(account)
}

// label is what people call an account: in operator mode the name in its claims.
func (a *app) label(account string) string {
	if known := a.claims(account); known != nil {
		return known.Label()
	}
	return account
}

// banner says what is starting.
func (a *app) banner() {
	s, o := a.gw.Stats(), a.cfg.Server
	a.log.Info("Starting ehdb-gateway")
	a.log.Info("  Version:  {version}", slog.String("version", version()))
	a.log.Info("  NATS:     {nats}", slog.String("nats", server.VERSION))
	a.log.Info("  Bus:      {mode}", slog.String("mode", string(a.cfg.Bus.Mode)))
	a.log.Info("  Name:     {name}", slog.String("name", s.ServerName))
	a.log.Info("  ID:       {id}", slog.String("id", s.ServerID))
	a.log.Info("  CPUs:     {gomaxprocs} of {cores}",
		slog.Int("gomaxprocs", runtime.GOMAXPROCS(0)), slog.Int("cores", runtime.NumCPU()))
	if limit := debug.SetMemoryLimit(-1); limit < 1<<62 {
		a.log.Info("  Memory:   {limit} bytes (GOMEMLIMIT)", slog.Int64("limit", limit))
	}
	if o.ConfigFile != "" {
		a.log.Info("Using configuration file: {file} ({digest})",
			slog.String("file", o.ConfigFile), slog.String("digest", o.ConfigDigest()))
	}
	if a.nats != nil {
		a.nats.banner(a.log.Logger)
	}
	for _, w := range a.cfg.Warnings {
		a.log.Warn("{warning}", slog.String("warning", w))
	}
	if plaintext(o) {
		a.log.Warn("Plaintext passwords detected, use bcrypt")
	}
}

// plaintext reports whether o holds a password that is not hashed.
func plaintext(o *server.Options) bool {
	secrets := []string{o.Password, o.Authorization}
	for _, u := range o.Users {
		secrets = append(secrets, u.Password)
	}
	for _, s := range secrets {
		if s != "" && (len(s) < 4 || s[0] != '$' || s[1] != '2') {
			return true
		}
	}
	return false
}

func (a *app) startMonitor() error {
	mo := monitor.Options{
		Server: a.cfg.Server, Core: a.core, Metrics: a.metrics, Logger: a.log.Logger,
		MetricsPort: a.cfg.EHDB.MetricsPort, Links: a.shownLinks,
	}
	lag := lagSource(noStreams{})
	if a.streams != nil {
		mo.JetStream, lag = a.streams, a.streams
	}
	if a.nats != nil {
		mo.JetStream, mo.Upstream, lag = a.nats, a.nats, a.nats
	}
	if a.mover != nil {
		v := moving{a.nats, a.streams, a.mover}
		mo.JetStream, lag = v, v
	}
	mo.Extra = lagPages(lag)
	if a.mover != nil {
		for page, h := range mo.Extra {
			mo.Extra[page] = a.mover.scrapes.counted(page, h)
		}
		mo.Read = a.mover.scrapes.read
		maps.Copy(mo.Extra, a.mover.routes())
	} else {
		maps.Copy(mo.Extra, noConsole(&a.cfg.Bus))
	}
	mo.Extra[feed.Path] = a.feedPage()
	a.monitor = monitor.New(mo)
	return a.monitor.Start()
}

// monitorAddr is the monitor's address, as a list.
func (a *app) monitorAddr() []net.Addr {
	if a.cfg.Server.HTTPPort == 0 && a.cfg.Server.HTTPSPort == 0 {
		return nil
	}
	return a.monitor.Addrs()[:1]
}

// openMetrics opens /metrics once there is something to show.
func (a *app) openMetrics() {
	s := metrics.Sources{
		Gateway: a.core.gatewayMetrics, Subjects: a.cfg.EHDB.Subjects, Version: version(), Mode: string(a.cfg.Bus.Mode),
		Shards: 1,
	}
	if a.streams != nil {
		a.streams.addTo(&s)
	}
	if a.feeds != nil {
		s.SSE = a.feedCounts
	}
	if a.nats != nil {
		s.Upstream, s.Durables = a.nats.measured, a.durables
	}
	if a.mover != nil {
		s.Extra = append(s.Extra, a.mover.mirrors, face.Metrics(a.mover.pilot.Parity()), a.mover.pilot.Metrics(),
			a.mover.pilot.Moved(), face.StandingMetrics(a.mover.pilot.Standing))
	}
	a.metrics.Ready(s)
}

// startProfiler serves pprof on prof_port.
func (a *app) startProfiler() error {
	o := a.cfg.Server
	if o.ProfPort == 0 {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	runtime.SetBlockProfileRate(o.ProfBlockRate)
	l, err := net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(max(o.ProfPort, 0))))
	if err != nil {
		return fmt.Errorf("can't listen to the profile port: %w", err)
	}
	a.log.Info("profiling port: {port}", slog.String("port", l.Addr().String()))
	a.profile = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := a.profile.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("Profiler stopped", slog.Any("error", err))
		}
	}()
	return nil
}

// stop ends the parts: the streams first, so that waiting requests are answered over connections that still stand. Only
// feeds, which read the streams, end before.
func (a *app) stop() error {
	var errs []error
	a.closeFeeds()
	if a.mover != nil {
		a.mover.closePages()
		a.mover.stop()
	}
	if a.streams != nil {
		errs = append(errs, a.streams.stop())
	}
	if s := a.system.Swap(nil); s != nil {
		s.Stop()
	}
	if a.gw != nil {
		a.gw.Shutdown()
	}
	if a.mover != nil {
		a.mover.leave()
	}
	if a.tenants != nil {
		a.tenants.stop()
	}
	if a.monitor != nil {
		errs = append(errs, a.monitor.Close())
	}
	if a.profile != nil {
		errs = append(errs, a.profile.Close())
	}
	return errors.Join(append(errs, removePid(a.cfg.Server.PidFile), removeFile(a.ports))...)
}
