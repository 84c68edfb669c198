package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/metrics"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/subjects"
)

// streams is JetStream as the other parts see it.
type streams struct {
	cfg     *config.Config
	log     *slog.Logger
	svc     *jetstreamapi.Service
	label   func(account string) string // what people call an account
	leaving func() bool                 // the server is in lame duck mode
	syncing atomic.Int64                // nanoseconds in which the log synced

	mu      sync.Mutex // guards what follows
	serving bool
	refused map[int]uint64
	last    storage.Stats // as it was when the data directory was last open
}

func newStreams(a *app) *streams {
	o, own, id := a.cfg.Server, a.cfg.EHDB, a.gw.Stats()
	s := &streams{cfg: a.cfg, log: a.log.Logger, refused: map[int]uint64{}, label: a.label, leaving: a.gw.Leaving}
	memory, disk := storeLimits(o, a.cfg.DataDir)
	s.svc = jetstreamapi.New(jetstreamapi.Options{
		Bus: a.router,
		Storage: storage.Options{
			FS: a.fs, Dir: a.cfg.DataDir, Shards: own.Shards, QueueBytes: own.QueueBytes, StallBytes: own.StallBytes,
			WindowSize: own.WindowBytes, Encryption: encryption(o), Events: s.events(a.metrics),
			Seal: true, SealMaxAge: own.SealMaxAge, SealBytes: own.SealBytes, Memory: own.Memory,
		},
		ServerName: id.ServerName, ServerID: id.ServerID, Domain: o.JetStreamDomain, System: systemAccount(o),
		Accounts: a.cfg.JetStreamAccounts, Outsiders: outsiders(a.cfg), MaxMemory: memory, MaxStore: disk,
		Limits: o.JetStreamLimits, Lax: o.NoJetStreamStrict, SyncInterval: o.SyncInterval,
		Placement: placementOf(own.Map), QueueLimit: int(o.JetStreamRequestQueueLimit), Logger: s.log,
		MaxPayload: int64(o.MaxPayload), Upstreams: originServers(own.Upstreams), Published: a.metrics.Published,
		Acknowledged: a.metrics.Acknowledged,
		Client:       func(id bus.Identity) *server.ClientInfo { return a.gw.ClientInfo(id, true) },
	})
	s.log.Info("Starting JetStream")
	s.log.Info("---------------- JETSTREAM ----------------")
	s.log.Info("  Max Memory:      {bytes}", slog.String("bytes", friendly(memory)))
	s.log.Info("  Max Storage:     {bytes}", slog.String("bytes", friendly(disk)))
	s.log.Info("  Store Directory: {dir}", slog.String("dir", `"`+a.cfg.DataDir+`"`))
	if o.JetStreamKey != "" {
		s.log.Info("  Encryption:      {cipher}", slog.String("cipher", cipherOf(o).String()))
	}
	if o.JetStreamDomain != "" {
		s.log.Info("  Domain:          {domain}", slog.String("domain", o.JetStreamDomain))
	}
	s.log.Info("-------------------------------------------")
	return s
}

// outsiders returns the accounts that have no JetStream though the server has, and that use no other account's.
func outsiders(cfg *config.Config) []string {
	names := []string{server.DEFAULT_GLOBAL_ACCOUNT, systemAccount(cfg.Server)}
	for _, a := range cfg.Server.Accounts {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	elsewhere := func(name string) bool {
		return slices.ContainsFunc(cfg.Accounts, func(a *accounts.Account) bool {
			return a.Name == name && a.ImportsJetStream()
		})
	}
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		_, has := cfg.JetStreamAccounts[name]
		return has || name == "" || elsewhere(name)
	})
}

// defaultQueueBytes is the bound of a shard's queue when the configuration has none (storage.Options).
const defaultQueueBytes = 64 << 20

// friendly writes bytes as nats-server does.
func friendly(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	exp := min(int(math.Log(float64(bytes))/math.Log(1024)), len(units))
	return fmt.Sprintf("%.2f %cB", float64(bytes)/math.Pow(1024, float64(exp)), units[exp-1])
}

// events turns what happens in the data directory into log lines and measurements.
func (s *streams) events(m *metrics.Metrics) storage.Events {
	return storage.Events{
		Synced: func(records int, bytes int64, seconds float64) {
			s.syncing.Add(int64(seconds * float64(time.Second)))
			m.Synced(records, bytes, seconds)
		},
		TailCut: func(path string, offset, bytes int64) {
			s.log.Warn("The last block of the log was damaged or not whole and was cut off. What a crash leaves there "+
				"was not acknowledged; something acknowledged is lost only if the disk damaged it",
				slog.String("path", path), slog.Int64("offset", offset), slog.Int64("bytes", bytes))
		},
		NoSpace: func(err error) {
			s.log.Error("No space left: publishes are refused until there is", slog.Any("error", err))
		},
		Resumed: func() { s.log.Info("There is space again: publishes are taken") },
		Stopped: func(err error) {
			s.log.Error("The data directory failed: nothing is acknowledged until it is open again",
				slog.Any("error", err))
		},
		Encrypted: func(ring crypt.Ring) {
			switch {
			case ring.Made:
				s.log.Info("The data directory is encrypted from now on. Keep the key: without it, or without the " +
					"files KEYS and KEYS.copy, nothing can be read")
			case ring.Rotated:
				s.log.Info("The data directory's key was changed: jetstream.prev_key is not needed any more, take it " +
					"out of the configuration")
			}
		},
		AllEncrypted: func() { s.log.Info("What was stored before the data directory was encrypted is encrypted too") },
		Damaged: func(err error) {
			s.log.Error("A stream's messages are damaged: it takes nothing more. Others are not concerned",
				slog.Any("error", err))
		},
		Recovered: func(logs int, records uint64, seconds float64) {
			s.log.Info("Recovered {records} records of {logs} logs in {seconds} s", slog.Uint64("records", records),
				slog.Int("logs", logs), slog.String("seconds", fmt.Sprintf("%.3f", seconds)))
		},
	}
}

// start recovers the streams and serves them.
func (s *streams) start(ctx context.Context) error {
	if err := s.svc.Start(ctx); err != nil {
		return withKeyHint(err)
	}
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	want, have := s.cfg.EHDB.Shards, s.stats().Shards
	if want != 0 && want != len(have) {
		return fmt.Errorf("the data directory %s has %d shards and ehdb.shards says %d: the number is settled when a "+
			"directory is made; set ehdb { shards: %d }", s.cfg.DataDir, len(have), want, len(have))
	}
	return nil
}

func (s *streams) stop() error {
	s.mu.Lock()
	serving := s.serving
	s.serving = false
	s.mu.Unlock()
	if !serving {
		return nil
	}
	return s.svc.Stop(context.Background())
}

// up reports whether the streams serve.
func (s *streams) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// stats returns the counters of the data directory; while it is closed after a failure, the last ones.
func (s *streams) stats() storage.Stats {
	st := s.svc.Store()
	s.mu.Lock()
	defer s.mu.Unlock()
	if st != nil {
		s.last = st.Stats()
	}
	return s.last
}

// errRecovering is what is said before there are figures. Scalers would take zeros for the truth.
var errRecovering = errors.New("not ready: streams are being recovered, or the server stops")

// errLeaving is what is said in lame duck mode: clients go one after the other, so consumers look as if nobody worked.
var errLeaving = errors.New("not ready: the server is in lame duck mode")

// Known implements monitor.JetStream.
func (s *streams) Known() error {
	switch {
	case !s.up():
		return errRecovering
	case s.leaving():
		return errLeaving
	}
	st := s.svc.Store()
	if st == nil {
		return errors.New("not ready: the data directory failed and is being opened again")
	}
	if err := st.Err(); err != nil {
		return fmt.Errorf("not ready: the data directory failed: %w", err)
	}
	return nil
}

// Jsz implements monitor.JetStream.
func (s *streams) Jsz(o *server.JSzOptions) (*server.JSInfo, error) {
	if !s.up() {
		return nil, &monitor.UnavailableError{Err: errRecovering}
	}
	j := s.svc.Jsz(o)
	for _, d := range j.AccountDetails {
		d.Name = s.label(d.Id)
	}
	return j, nil
}

// Healthz implements monitor.JetStream.
func (s *streams) Healthz(o *server.HealthzOptions) *server.HealthStatus {
	var found []server.HealthzError
	switch {
	case !s.up():
		off := server.NewJSNotEnabledError().Error()
		found = []server.HealthzError{{Type: server.HealthzErrorJetStream, Error: off}}
	case o.JSEnabledOnly:
	default:
		found = s.svc.Health(o.Account, o.Stream, o.Consumer)
	}
	return healthOf(o, found)
}

// healthOf turns what was found into a status, in nats-server's words.
func healthOf(o *server.HealthzOptions, found []server.HealthzError) *server.HealthStatus {
	h := &server.HealthStatus{Status: "ok", StatusCode: http.StatusOK}
	if len(found) == 0 {
		return h
	}
	h.StatusCode = http.StatusServiceUnavailable
	for i := range found {
		if text := notThere(&found[i]); text != "" {
			h.StatusCode, found[i].Error = http.StatusNotFound, text
		}
	}
	if o.Details {
		h.Status, h.Errors = "error", found
		return h
	}
	h.Status, h.Error = "unavailable", found[0].Error
	return h
}

// notThere returns nats-server's text if e says that what was asked about does not exist, else "".
func notThere(e *server.HealthzError) string {
	switch {
	case e.Type == server.HealthzErrorStream && e.Error == server.NewJSStreamNotFoundError().Description:
		return fmt.Sprintf("JetStream stream %q not found on account %q", e.Stream, e.Account)
	case e.Type == server.HealthzErrorConsumer && e.Error == server.NewJSConsumerNotFoundError().Description:
		return fmt.Sprintf("JetStream consumer %q not found for stream %q on account %q",
			e.Consumer, e.Stream, e.Account)
	case e.Type == server.HealthzErrorAccount && e.Error == fmt.Sprintf("JetStream account %q not found", e.Account):
		return e.Error
	}
	return ""
}

// addTo gives metrics their view of the streams.
func (s *streams) addTo(m *metrics.Sources) {
	m.Shards = len(s.stats().Shards)
	m.JetStream = s.measured
	m.Durables = func(fn func(metrics.Durable)) bool {
		for _, l := range s.svc.Lags() {
			fn(durable(l))
		}
		return true
	}
}

// durable is l as metrics take it. A consumer without filters counts as one that filters for its stream's subjects.
func durable(l jetstreamapi.Lag) metrics.Durable {
	held := uint64(max(l.AckPending, 0)) //nolint:gosec // not negative
	d := metrics.Durable{Filters: l.Filters, Pending: l.Pending, AckPending: held, Count: func(subject string) uint64 {
		return l.Count(subject) + held
	}}
	if len(d.Filters) == 0 {
		d.Filters = l.Subjects
	}
	d.Account, d.Stream, d.Consumer = l.Account, l.Stream, l.Consumer
	d.Waiting = uint64(max(l.Waiting, 0)) //nolint:gosec // not negative
	d.Delivered, d.Acked, d.Created = l.Delivered, l.Acked, l.Created
	d.Detail = func() metrics.Detail {
		s := l.Stats()
		return metrics.Detail{
			OldestPending: s.OldestPending, OldestAckPending: s.OldestAckPending, Redeliveries: s.Redeliveries,
		}
	}
	for _, i := range l.Shards {
		d.Shards = append(d.Shards, int(i))
	}
	return d
}

func (s *streams) measured() metrics.JetStream {
	out := metrics.JetStream{Storage: s.stats(), QueueLimit: cmp.Or(s.cfg.EHDB.QueueBytes, defaultQueueBytes)}
	out.MemoryLimit, out.FileLimit = s.svc.MaxStorage()
	out.DiskFree, out.DiskSize = diskSpace(s.cfg.DataDir)
	if !s.up() {
		return out
	}
	out.Refusals = s.refusals()
	for _, e := range s.svc.Health("", "", "") {
		if e.Type == server.HealthzErrorJetStream {
			out.StorageErr = fmt.Errorf("%s", e.Error)
		}
	}
	j := s.svc.Jsz(&server.JSzOptions{})
	out.Streams, out.Consumers = uint64(j.Streams), uint64(j.Consumers) //nolint:gosec // not negative
	out.Messages, out.Bytes = j.Messages, j.Bytes
	out.FileBytes, out.MemoryBytes = j.Store, j.Memory
	out.APIRequests, out.APIErrors = j.API.Total, j.API.Errors
	counts := s.svc.Counters()
	out.Miscounted, out.Audits = counts.Miscounted, counts.Audits
	//nolint:gosec // not negative
	out.Stalled, out.KeyBlocked = uint64(max(counts.Stalled, 0)), uint64(max(counts.KeyBlocked, 0))
	return out
}

// refusals returns the publishes refused so far. A count never goes back, whatever streams come and go.
func (s *streams) refusals() map[int]uint64 {
	now := s.svc.Counters().Published.Refused
	s.mu.Lock()
	defer s.mu.Unlock()
	for code, n := range now {
		s.refused[int(code)] = max(s.refused[int(code)], n)
	}
	return maps.Clone(s.refused)
}

// placement places streams by the subject map.
type placement struct{ m *subjects.ShardMap }

// placementOf returns nil, which is the default, when there is no map.
func placementOf(m *subjects.ShardMap) jetstreamapi.Placement {
	if m == nil {
		return nil
	}
	return placement{m}
}

// Shards implements jetstreamapi.Placement. n is the number the map was made for, or the start fails.
func (p placement) Shards(account, stream string, filters []string, _ int) []uint32 {
	var out []uint32
	for _, i := range p.m.Reach(account, stream, filters) {
		out = append(out, uint32(i)) //nolint:gosec // a shard number
	}
	return out
}

// Route implements jetstreamapi.Placement.
func (p placement) Route(account, stream string, subject []byte, _ int) uint32 {
	return uint32(p.m.Shard(account, stream, subject)) //nolint:gosec // a shard number
}
