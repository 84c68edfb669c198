package drill

import (
	"strings"
	"testing"
	"time"
)

// exercised is a drill of a kind that nothing speaks against.
func exercised(kind string) *Drill {
	at := time.Unix(1000, 0)
	d := &Drill{
		Kind: kind, State: Running, Step: Settling, Fault: &Fault{At: at, Led: "n1", Leads: "n2"},
		Before: &Sight{Process: at.Add(-time.Hour), Epoch: 3, Here: 50, There: 49, Reopens: 1},
		After:  &Sight{Process: at.Add(-time.Hour), Epoch: 3, Here: 100, There: 100, Messages: 100, Examined: 100, Reopens: 1},
		Account: &Account{
			Published: 100, Before: 50, After: 40, Delivered: 100, Confirmed: 100, LastSeq: 100, Disconnects: 2, Redial: 1,
			Recovery: 1, Gap: 2,
		},
	}
	switch kind {
	case KillGateway:
		d.After.Process = at.Add(time.Second)
	case RestartWriter:
		d.After.Reopens = 2
	case Partition:
		d.Fault.Until = at.Add(5 * time.Second)
		d.Account.Gap = 7
	}
	return d
}

// TestJudge: every figure that is not as it has to be fails a drill, and so does every one that is missing.
func TestJudge(t *testing.T) {
	kinds := []string{RestartWriter, KillGateway, Partition, Stepdown}
	for _, kind := range kinds {
		d := exercised(kind)
		if d.Judge(DefaultLimits); d.State != Passed || !strings.Contains(d.Result, "lost 0") {
			t.Errorf("%s: %s %s", kind, d.State, d.Result)
		}
	}
	for _, c := range []struct {
		spoil func(*Drill)
		want  string
		of    []string // kinds; nil: all
	}{
		{spoil: func(d *Drill) { d.Account = nil }, want: "nobody has said"},
		{spoil: func(d *Drill) { d.Account.Error = "no login" }, want: "no login"},
		{spoil: func(d *Drill) { d.Fault = nil }, want: "not brought about"},
		{spoil: func(d *Drill) { d.Before = nil }, want: "has not seen"},
		{spoil: func(d *Drill) { d.After = nil }, want: "has not seen"},
		{spoil: func(d *Drill) { d.Account.Lost = 1 }, want: "1 acknowledged messages lost"},
		{spoil: func(d *Drill) { d.Account.Twice = 1 }, want: "stored twice"},
		{spoil: func(d *Drill) { d.Account.Again = 1 }, want: "behind a confirmed ack"},
		{spoil: func(d *Drill) { d.Account.Altered = 1 }, want: "another message"},
		{spoil: func(d *Drill) { d.Account.Backward = 1 }, want: "backward"},
		{spoil: func(d *Drill) { d.Account.Unanswered = 1 }, want: "failed for good"},
		{spoil: func(d *Drill) { d.Account.Before = 19 }, want: "not measured"},
		{spoil: func(d *Drill) { d.Account.After = 19 }, want: "not measured"},
		{spoil: func(d *Drill) { d.Account.Delivered = 99 }, want: "99 of 100 messages delivered"},
		{spoil: func(d *Drill) { d.Account.Confirmed = 99 }, want: "the acks of 99"},
		{spoil: func(d *Drill) { d.After.Epoch = 2 }, want: "epoch went back"},
		{spoil: func(d *Drill) { d.Before.Here = 101 }, want: "last sequence here went back"},
		{spoil: func(d *Drill) { d.Before.There = 101 }, want: "on the servers went back"},
		{spoil: func(d *Drill) { d.Account.LastSeq = 101 }, want: "and 101 was acknowledged"},
		{spoil: func(d *Drill) { d.After.Messages = 99 }, want: "99 messages are stored"},
		{spoil: func(d *Drill) { d.After.Messages = 101 }, want: "101 messages are stored"},
		{spoil: func(d *Drill) { d.After.Unequal = "one lags" }, want: "one lags"},
		{spoil: func(d *Drill) { d.After.Diverged = 1 }, want: "1 messages differ"},
		{spoil: func(d *Drill) { d.Account.Recovery = 31 }, want: "it took 31.0 s"},
		{spoil: func(d *Drill) { d.Account.Gap = 36 }, want: "nothing was acknowledged or delivered for 36.0 s"},
		{spoil: func(d *Drill) { d.After.Process = d.Before.Process }, want: "not started again", of: []string{KillGateway}},
		{spoil: func(d *Drill) { d.Account.Disconnects = 0 }, want: "no client lost", of: []string{KillGateway, Partition}},
		{spoil: func(d *Drill) { d.Account.Redial = 5.1 }, want: "without a connection", of: []string{KillGateway}},
		{spoil: func(d *Drill) { d.After.Reopens = 1 }, want: "0 times, not once", of: []string{RestartWriter}},
		{spoil: func(d *Drill) { d.After.Reopens = 3 }, want: "2 times, not once", of: []string{RestartWriter}},
		{spoil: func(d *Drill) { d.After.Process = d.Fault.At }, want: "started again meanwhile", of: []string{RestartWriter}},
		{spoil: func(d *Drill) { d.Account.Recovery = 5.1 }, want: "it took 5.1 s", of: []string{RestartWriter}},
		{spoil: func(d *Drill) { d.Fault.Leads = "" }, want: "not measured: the leader", of: []string{Stepdown}},
		{spoil: func(d *Drill) { d.Fault.Leads = "n1" }, want: "not measured: the leader", of: []string{Stepdown}},
	} {
		if c.of == nil {
			c.of = kinds
		}
		for _, kind := range c.of {
			d := exercised(kind)
			c.spoil(d)
			if d.Judge(DefaultLimits); d.State != Failed || !strings.Contains(d.Result, c.want) {
				t.Errorf("%s: %s %q, want %q", kind, d.State, d.Result, c.want)
			}
		}
	}
}
