package pilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// scopeOf is the stream of an exercise's load.
func scopeOf(d *drill.Drill) cutover.Scope {
	return cutover.Scope{Account: d.Scope.Account, Stream: d.Stream}
}

// prepareDrill does what comes before an exercise's load, or the whole of one without a load. While the state is
// Running it is not at its end.
func (p *Pilot) prepareDrill(ctx context.Context, d *drill.Drill) (state drill.State, result string, err error) {
	id := fmt.Sprintf("%d_%x", d.ID, d.Started.Unix()) // no other's, also when the data directory is a new one
	name, subject := scratchPrefix+clean(p.o.Server)+"_DRILL_"+id, "_EHDB.drill."+clean(p.o.Server)+"."+id
	if *d, err = p.drills.log.Change(d.ID, func(d *drill.Drill) error { // before it is there, so that it is removed
		d.Stream, d.Subject, d.Consumer = name, subject, "worker"
		return nil
	}); err != nil {
		return "", "", err
	}
	if d.Kind == drill.FlipAndBack {
		result, err = p.flipAndBack(ctx, d)
		return drill.Passed, result, err
	}
	info, err := p.makeDrillStream(ctx, d)
	if err != nil {
		return "", "", err
	}
	if d.Kind == drill.Stepdown && (info.Cluster == nil || info.Cluster.Name == "") {
		return drill.NotApplicable, singleServer, nil
	}
	scope := scopeOf(d)
	if err := p.engine.Watch(ctx, scope, "drill"); err != nil {
		return "", "", err
	}
	if drill.Here(d.Kind) {
		if _, err := p.engine.Flip(ctx, scope, flip.MoveOptions{By: "drill", Retries: 3}); err != nil {
			return "", "", err
		}
	}
	*d, err = p.drills.log.Change(d.ID, func(d *drill.Drill) error {
		if d.State != drill.Running {
			return errors.New("it was given up") // it has ended already
		}
		d.Step = drill.Ready
		return nil
	})
	return drill.Running, "", err
}

// makeDrillStream makes the stream of a load and its consumer on the servers, as safe there as the stream that the
// exercise was asked for.
func (p *Pilot) makeDrillStream(ctx context.Context, d *drill.Drill) (*jetstream.StreamInfo, error) {
	c := p.o.Conns[d.Scope.Account]
	js, err := jetstream.New(c.NATS())
	if err != nil {
		return nil, err
	}
	replicas := 1
	if like, err := c.Stream(d.Scope.Stream).Info(ctx); err == nil {
		replicas = max(replicas, like.Config.Replicas)
		if d.Kind == drill.Stepdown && clustered(like.Cluster) { // a stream with one copy has no leader to choose
			replicas = max(replicas, 3) //nolint:mnd // the fewest that can
		}
	} else if !errors.Is(err, cutover.ErrNoStream) {
		return nil, err
	}
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: d.Stream, Subjects: []string{d.Subject}, Replicas: replicas,
		Description: "made by ehdb-gateway for a drill; it can be deleted",
	})
	if err != nil {
		return nil, fmt.Errorf("its stream could not be made on the servers: %w", err)
	}
	if _, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: d.Consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second, MaxAckPending: 1000,
	}); err != nil {
		return nil, fmt.Errorf("its consumer could not be made on the servers: %w", err)
	}
	return s.Info(ctx)
}

// sight is how an exercise's stream stands.
func (p *Pilot) sight(ctx context.Context, scope cutover.Scope) (*drill.Sight, error) {
	v, err := p.engine.View(scope)
	if err != nil {
		return nil, unknown(err)
	}
	here, err := v.Copy.State(ctx, false)
	if err != nil {
		return nil, err
	}
	there, err := v.Upstream.State(ctx, false)
	if err != nil {
		return nil, err
	}
	st, err := p.engine.Status(scope)
	if err != nil {
		return nil, err
	}
	s := &drill.Sight{
		At: time.Now().UTC(), Process: p.start.UTC().Round(0), Epoch: st.Epoch,
		Here: here.LastSeq, There: there.LastSeq, Messages: here.Msgs,
	}
	if f := p.o.Faults.Reopens; f != nil {
		s.Reopens = f()
	}
	if here.LastSeq != there.LastSeq || here.Msgs != there.Msgs {
		s.Unequal = fmt.Sprintf("%d messages up to %d here, %d up to %d on the servers",
			here.Msgs, here.LastSeq, there.Msgs, there.LastSeq)
	}
	return s, nil
}

// settlePoll is how often it is looked whether both sides have become equal.
const settlePoll = 250 * time.Millisecond

// settleDrill waits until both sides of an exercise's stream are equal, and compares them. That they do not become so
// is in what it returns.
func (p *Pilot) settleDrill(ctx context.Context, d *drill.Drill) (*drill.Sight, error) {
	for {
		s, err := p.compared(ctx, scopeOf(d))
		if err == nil && s.Unequal == "" && s.Diverged == 0 {
			return s, nil
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return s, err
		}
	}
}

// compared is sight with a comparison of all messages, if both sides are as far.
func (p *Pilot) compared(ctx context.Context, scope cutover.Scope) (*drill.Sight, error) {
	const limit = 5 * time.Second // as long as calls to the servers take
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	s, err := p.sight(ctx, scope)
	if err != nil || s.Unequal != "" {
		return s, err
	}
	st, err := p.parity.Verify(ctx, scope, s.Here)
	s.Examined, s.Diverged = st.Counts.Examined, st.Counts.Diverged()
	switch {
	case err != nil:
		s.Unequal = err.Error()
	case s.Examined < s.Messages:
		s.Unequal = fmt.Sprintf("%d of %d messages were compared", s.Examined, s.Messages)
	}
	return s, nil
}

// breakDown brings a fault about, and notes how.
func (p *Pilot) breakDown(ctx context.Context, d *drill.Drill, f *drill.Fault) error {
	faults := &p.o.Faults
	switch d.Kind {
	case drill.KillGateway:
		f.Detail = "SIGKILL"
		time.AfterFunc(killPause, faults.Kill)
	case drill.RestartWriter:
		if err := faults.Restart(); err != nil {
			return err
		}
		f.Detail = fmt.Sprintf("the writer was stopped, and the data directory served again after %v",
			time.Since(f.At).Round(time.Millisecond))
	case drill.Partition:
		f.Detail = fmt.Sprintf("%d connections to the servers were closed, and none was made for %v",
			faults.Cut(time.Until(f.Until)), f.Until.Sub(f.At).Round(time.Millisecond))
	case drill.Stepdown:
		return p.stepDown(ctx, d, f)
	}
	return nil
}

// stepDown makes the servers choose another leader of an exercise's stream.
func (p *Pilot) stepDown(ctx context.Context, d *drill.Drill, f *drill.Fault) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) //nolint:mnd // elections take seconds
	defer cancel()
	c := p.o.Conns[d.Scope.Account]
	leader := func() (string, error) {
		info, err := c.Stream(d.Stream).Info(ctx)
		if err != nil || info.Cluster == nil {
			return "", err
		}
		return info.Cluster.Leader, nil
	}
	var err error
	if f.Led, err = leader(); err != nil {
		return err
	}
	if err := askDown(ctx, c.NATS(), d.Stream); err != nil {
		return err
	}
	for {
		f.Leads, err = leader()
		if err == nil && f.Leads != "" && f.Leads != f.Led {
			f.Detail = fmt.Sprintf("%s led the stream, and %s after %v", f.Led, f.Leads,
				time.Since(f.At).Round(time.Millisecond))
			return nil
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return fmt.Errorf("%s was asked to step down, and no other has become the leader", f.Led)
		}
	}
}

func askDown(ctx context.Context, nc *nats.Conn, stream string) error {
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	if err != nil {
		return fmt.Errorf("asking the leader to step down: %w", err)
	}
	var a server.JSApiStreamLeaderStepDownResponse
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return fmt.Errorf("asking the leader to step down: %w", err)
	}
	if a.Error != nil {
		return fmt.Errorf("asking the leader to step down: %s (%d)", a.Error.Description, a.Error.ErrCode)
	}
	return nil
}

// tidyDrill removes the stream of an exercise from both sides.
func (p *Pilot) tidyDrill(ctx context.Context, d *drill.Drill) error {
	p.drills.op.Lock()
	defer p.drills.op.Unlock()
	for account, c := range p.o.Conns {
		if d.Stream == "" {
			break
		}
		scope := cutover.Scope{Account: account, Stream: d.Stream}
		try, cancel := context.WithTimeout(ctx, drillTime)
		err := p.removeDrillStream(try, scope, c.NATS())
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", scope, err)
		}
	}
	_, err := p.drills.log.Change(d.ID, func(d *drill.Drill) error {
		d.Tidied = true
		return nil
	})
	return err
}

func (p *Pilot) removeDrillStream(ctx context.Context, scope cutover.Scope, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if v, err := p.engine.View(scope); err == nil {
		if v.Phase == flip.PhaseEHDB {
			if err := p.giveUp(ctx, scope, js); err != nil {
				return err
			}
		}
		if err := p.engine.Forget(ctx, scope, "drill"); err != nil {
			return err
		}
	}
	if err := js.DeleteStream(ctx, scope.Stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// giveUp rolls back a stream that is thrown away. Somebody may have deleted it on the servers, or published to it.
func (p *Pilot) giveUp(ctx context.Context, scope cutover.Scope, js jetstream.JetStream) error {
	o := flip.MoveOptions{By: "drill", Retries: 3}
	_, err := p.engine.Rollback(ctx, scope, o)
	if err == nil || ctx.Err() != nil {
		return err
	}
	_, made := js.CreateStream(ctx, jetstream.StreamConfig{Name: scope.Stream}) // it has to be there
	if errors.Is(made, jetstream.ErrStreamNameAlreadyInUse) {
		made = nil
	}
	o.Emergency = true
	if _, err2 := p.engine.Rollback(ctx, scope, o); err2 != nil {
		return errors.Join(err, made, err2)
	}
	return nil
}

// flipAndBack moves a stream of its own there and back, with messages before, between and after, in every account.
func (p *Pilot) flipAndBack(ctx context.Context, d *drill.Drill) (string, error) {
	var list []string
	for account, c := range p.o.Conns {
		js, err := jetstream.New(c.NATS())
		if err != nil {
			return "", err
		}
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: d.Stream, Subjects: []string{d.Subject}})
		if err != nil {
			return "", err
		}
		out, err := p.rehearse(ctx, cutover.Scope{Account: account, Stream: d.Stream}, s, d.Subject, func() error {
			_, err := js.Publish(ctx, d.Subject, []byte("there"))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", account, err)
		}
		list = append(list, account+": "+out)
	}
	return strings.Join(list, "; "), nil
}

// rehearse moves one stream there and back.
func (p *Pilot) rehearse(
	ctx context.Context, scope cutover.Scope, s jetstream.Stream, subject string, there func() error,
) (string, error) {
	const each = 100
	for range each {
		if err := there(); err != nil {
			return "", err
		}
	}
	o := flip.MoveOptions{By: "drill", Retries: 3}
	if err := p.engine.Watch(ctx, scope, "drill"); err != nil {
		return "", err
	}
	flipped, err := p.engine.Flip(ctx, scope, o)
	if err != nil {
		return "", err
	}
	if err := p.publishHere(scope.Account, subject, each); err != nil {
		return "", err
	}
	v, err := p.engine.View(scope)
	if err != nil {
		return "", err
	}
	for last := uint64(0); last < flipped.Last+each; { // what was published is durable
		var moved <-chan struct{}
		if last, moved = v.Copy.Progress(); last < flipped.Last+each {
			select {
			case <-moved:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
	back, err := p.engine.Rollback(ctx, scope, o)
	if err != nil {
		return "", err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return "", err
	}
	if want := flipped.Last + each; info.State.LastSeq != want || info.State.Msgs < 2*each {
		return "", fmt.Errorf("the servers have %d messages up to %d, and should have %d",
			info.State.Msgs, info.State.LastSeq, want)
	}
	return fmt.Sprintf("held %v there and %v back, %d messages equal", flipped.Fence.Round(time.Millisecond),
		back.Fence.Round(time.Millisecond), info.State.Msgs), nil
}

// publishHere publishes on the gateway's own bus, as its clients do.
func (p *Pilot) publishHere(account, subject string, n int) error {
	session, err := p.o.Bus.Open(bus.KindService, bus.Identity{Account: account}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for range n {
		session.Publish(&bus.Msg{Subject: []byte(subject), Data: []byte("here")})
		session.Flush()
	}
	return nil
}
