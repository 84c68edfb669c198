package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// sealedStream is a stream, what it must hold, and who works on it.
type sealedStream struct {
	*ledger
	cfg   jetstream.StreamConfig
	model *sealedModel
	other *sealedModel // not nil: what may be the case as well, which only the consumers can tell
	open  []step       // what was asked for and not yet answered, in order
	ops   []func(*sealedOp) error
	subs  []string
	times map[uint64]time.Time // of each message, when it was first seen
	n     int

	mayFill  bool // publishes may be refused for want of room
	refusals int
}

// sealedOp is one connection's way to a stream.
type sealedOp struct {
	*sealedStream
	ctx context.Context
	nc  *nats.Conn
	js  jetstream.JetStream
	st  jetstream.Stream
	rnd *rand.Rand
}

// TestSealedModel works on streams of every kind while what they hold is sealed and merged all the time, kills or stops
// the gateway, and compares after each start, and again a while later, everything that can be read with a model.
// EHDB_SEED plays the same operations again, though not at the same moments.
func TestSealedModel(t *testing.T) { playSealed(t, t.TempDir(), false) }

// TestSealedModelOnSmallDisk does the same on a disk that may fill up: publishes are refused with the reason then,
// and nothing else is.
func TestSealedModelOnSmallDisk(t *testing.T) { playSealed(t, smallDisk(t, "24m"), true) }

func playSealed(t *testing.T, dir string, mayFill bool) {
	t.Helper()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("EHDB_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		noErr(t, err)
		seed = n
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	bin, conf := buildCtl(t), filepath.Join(dir, "sealed.conf")
	noErr(t, os.WriteFile(conf, []byte(
		"ehdb { allow_tmp_store: true, memory: 16MiB, seal_max_age: \"100ms\", seal_bytes: 1MiB }\n"), 0o600))
	p := startGateway(t, dir, "-c", conf)
	l := newLedger()
	streams := sealedStreams(l)
	js, ctx := jetStream(t, connect(t, p.URL))
	for _, s := range streams {
		s.mayFill = mayFill
		_, err := js.CreateStream(ctx, s.cfg)
		noErr(t, err)
		for i, f := range s.model.consumers {
			s.consumer(ctx, t, js, i, f)
		}
	}
	end, starts, most := time.Now().Add(soakFor()), 0, [2]int{}
	for ; time.Now().Before(end) && len(l.problems) == 0; starts++ {
		kill := rnd.IntN(4) > 0
		workSealed(t, p, streams, rnd, kill)
		stopSealed(t, p, kill)
		if out, code := ctl(t, bin, "storage", "verify", filepath.Join(dir, "ehdb")); code != 0 {
			t.Errorf("verify: exit code %d: %s", code, out)
		}
		p = startGateway(t, dir, "-c", conf)
		before := compareSealed(t, p, streams, rnd)
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		use := usage(p)
		most[0], most[1] = max(most[0], use[0]), max(most[1], use[1])
		if after := compareSealed(t, p, streams, rnd); after != before && len(l.problems) == 0 {
			l.problem("state before:\n%s\nand later:\n%s", before, after)
		}
	}
	if len(l.problems) > 0 || t.Failed() {
		t.Fatalf("EHDB_SEED=%d, start %d:\n%s", seed, starts, strings.Join(l.problems, "\n"))
	}
	for _, s := range streams {
		t.Logf("%s: %d operations, last sequence %d, %d messages, %d refusals",
			s.cfg.Name, s.n, s.model.last, len(s.model.msgs), s.refusals)
		if s.model.last == 0 {
			t.Errorf("nothing was shown of %s", s.cfg.Name)
		}
	}
	t.Logf("%d starts; at most %d MiB, %d descriptors", starts, most[0]>>10, most[1])
	if most[1] > 200 {
		t.Errorf("%d files are open", most[1])
	}
}

//nolint:revive // kill is what happens, not a mode
func stopSealed(t *testing.T, p *process, kill bool) {
	t.Helper()
	if kill {
		p.Kill()
		return
	}
	if err := p.Stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// usage returns the resident memory in KiB and the number of open files.
func usage(p *process) (u [2]int) {
	dir := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	b, _ := os.ReadFile(filepath.Join(dir, "status")) // not there: 0
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		_, _ = fmt.Sscan(rest, &u[0])
	}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
	u[1] = len(fds)
	return u
}

// workSealed works on all streams for a moment. With kill the gateway is killed in the middle of it.
//
//nolint:revive // kill is what happens, not a mode
func workSealed(t *testing.T, p *process, streams []*sealedStream, rnd *rand.Rand, kill bool) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, s := range streams {
		seed := rnd.Uint64()
		wg.Go(func() { s.work(ctx, p.URL, seed) })
	}
	time.Sleep(time.Duration(100+rnd.IntN(1200)) * time.Millisecond)
	if kill {
		p.Kill()
	}
	cancel()
	wg.Wait()
}

func (s *sealedStream) work(ctx context.Context, url string, seed uint64) {
	op, err := s.dial(context.WithoutCancel(ctx), url, seed)
	if err != nil {
		return // it was killed
	}
	defer op.nc.Close()
	for ctx.Err() == nil && !op.nc.IsClosed() {
		if err := s.ops[op.rnd.IntN(len(s.ops))](op); op.isRefused(err) {
			s.refusals++
		} else if err != nil {
			var api *jetstream.APIError
			if errors.As(err, &api) || !gone(err) {
				s.problem("%s: %v", s.cfg.Name, err)
			}
			return // its fate is not known
		}
		s.n++
	}
}

func gone(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || strings.Contains(err.Error(), "closed")
}

func (s *sealedStream) dial(ctx context.Context, url string, seed uint64) (*sealedOp, error) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(3*time.Second))
	if err != nil {
		nc.Close()
		return nil, err
	}
	st, err := js.Stream(ctx, s.cfg.Name)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &sealedOp{sealedStream: s, ctx: ctx, nc: nc, js: js, st: st, rnd: rand.New(rand.NewPCG(seed, 2))}, nil
}

// settled makes the model do what was answered.
func (s *sealedStream) settled() {
	for _, f := range s.open {
		f(s.model)
	}
	s.open = nil
}

// settle finds out what became of the steps whose answers did not come: the first k of them were made, for some k.
func (s *sealedStream) settle(stored []sealedMsg, first, last uint64) {
	m, why := s.model.clone(), ""
	for k := 0; ; k++ {
		if d := m.differs(stored, first, last); d == "" {
			s.model, s.other = m, nil
			if k < len(s.open) { // an ack that did not remove the message
				s.other = m.clone()
				if s.open[k](s.other); s.other.differs(stored, first, last) != "" {
					s.other = nil
				}
			}
			s.open = nil
			return
		} else if why == "" || k == len(s.open) {
			why += fmt.Sprintf("\n  after %d of %d open steps: %s", k, len(s.open), d)
		}
		if k == len(s.open) {
			break
		}
		s.open[k](m)
	}
	s.problem("%s: %s", s.cfg.Name, why)
}

// compareSealed reads everything in every way and returns a text of the state.
func compareSealed(t *testing.T, p *process, streams []*sealedStream, rnd *rand.Rand) string {
	t.Helper()
	var wg sync.WaitGroup
	texts := make([]string, len(streams))
	for i, s := range streams {
		seed := rnd.Uint64()
		wg.Go(func() {
			op, err := s.dial(t.Context(), p.URL, seed)
			if err != nil {
				s.problem("%s: %v", s.cfg.Name, err)
				return
			}
			defer op.nc.Close()
			if texts[i], err = op.compare(); err != nil {
				s.problem("%s: comparing: %v", s.cfg.Name, err)
			}
		})
	}
	wg.Wait()
	return strings.Join(texts, "\n")
}

func (op *sealedOp) compare() (string, error) {
	info, err := op.st.Info(op.ctx, jetstream.WithDeletedDetails(true), jetstream.WithSubjectFilter(">"))
	if err != nil {
		return "", err
	}
	st := info.State
	stored, err := op.direct(map[string]any{"seq": 1, "batch": 1000})
	if err != nil {
		return "", err
	}
	op.settle(stored, st.FirstSeq, st.LastSeq)
	m := op.model
	subjects := map[string]uint64{}
	for _, s := range m.msgs {
		subjects[s.subject]++
	}
	if fmt.Sprint(st.Subjects) != fmt.Sprint(subjects) && len(subjects) > 0 {
		op.problem("%s: subjects %v, want %v", op.cfg.Name, st.Subjects, subjects)
	}
	if st.Msgs != uint64(len(m.msgs)) || st.NumSubjects != uint64(len(subjects)) {
		op.problem("%s: %d messages of %d subjects, want %d of %d", op.cfg.Name, st.Msgs, st.NumSubjects, len(m.msgs), len(subjects))
	}
	for _, f := range []func() error{op.gets, op.last, op.next, op.multiLast, op.read, op.left} {
		if err := f(); err != nil {
			return "", err
		}
	}
	st.Deleted = slices.Clone(st.Deleted)
	b, err := json.Marshal(st)
	return op.cfg.Name + " " + string(b), err
}
