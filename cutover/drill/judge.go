package drill

import (
	"fmt"
	"strings"
	"time"
)

// Limits are what an exercise has to keep.
type Limits struct {
	// Redial is how long clients may be without a connection, or without an acknowledgement, when the gateway itself
	// was stopped.
	Redial time.Duration
	// Recovery is how long it may take otherwise until everything works again.
	Recovery time.Duration
	// Messages have to be acknowledged ahead of the fault, and behind it.
	Messages uint64
}

// DefaultLimits are those of production, PatientLimits those for machines that have other things to do.
var (
	DefaultLimits = Limits{Redial: 5 * time.Second, Recovery: 30 * time.Second, Messages: 20}
	PatientLimits = Limits{Redial: 30 * time.Second, Recovery: time.Minute, Messages: 20}
)

// Judge settles State and Result of an exercise with a load from what was seen. Whatever is missing fails it.
func (d *Drill) Judge(l Limits) {
	var why []string
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	switch a := d.Account; {
	case a == nil:
		bad(true, "nobody has said what became of the load")
	case a.Error != "":
		bad(true, "%s", a.Error)
	case d.Fault == nil:
		bad(true, "the fault was not brought about")
	case d.Before == nil || d.After == nil:
		bad(true, "the gateway has not seen both how it was before and how it is now")
	default:
		d.judgeAccount(a, l, bad)
		d.judgeSight(a, bad)
		d.judgeFault(a, l, bad)
	}
	if len(why) > 0 {
		d.State, d.Result = Failed, strings.Join(why, "; ")
		return
	}
	d.State, d.Result = Passed, d.summary()
}

// judgeAccount is about what clients saw.
func (d *Drill) judgeAccount(a *Account, l Limits, bad func(bool, string, ...any)) {
	bad(a.Lost > 0, "%d acknowledged messages lost", a.Lost)
	bad(a.Twice > 0, "%d messages stored twice", a.Twice)
	bad(a.Again > 0, "%d deliveries behind a confirmed ack", a.Again)
	bad(a.Altered > 0, "%d sequences with another message than was acknowledged", a.Altered)
	bad(a.Backward > 0, "%d sequences given again or backward", a.Backward)
	bad(a.Unanswered > 0, "%d publishes failed for good: %s", a.Unanswered, a.LastError)
	bad(a.Before < l.Messages, "not measured: %d messages before the fault, %d are needed", a.Before, l.Messages)
	bad(a.After < l.Messages, "not measured: %d messages behind the fault, %d are needed", a.After, l.Messages)
	bad(a.Delivered < a.Published, "%d of %d messages delivered", a.Delivered, a.Published)
	bad(a.Confirmed < a.Published, "the acks of %d of %d messages were confirmed", a.Confirmed, a.Published)
}

// judgeSight is about what the gateway saw, by itself.
func (d *Drill) judgeSight(a *Account, bad func(bool, string, ...any)) {
	was, is := d.Before, d.After
	bad(is.Epoch < was.Epoch, "the epoch went back from %d to %d", was.Epoch, is.Epoch)
	bad(is.Here < was.Here, "the last sequence here went back from %d to %d", was.Here, is.Here)
	bad(is.There < was.There, "the last sequence on the servers went back from %d to %d", was.There, is.There)
	bad(is.Here < a.LastSeq, "the last sequence is %d, and %d was acknowledged", is.Here, a.LastSeq)
	bad(is.Messages != a.Published, "%d messages are stored, and %d were acknowledged", is.Messages, a.Published)
	bad(is.Unequal != "", "the two sides are not known to be equal: %s", is.Unequal)
	bad(is.Diverged > 0, "%d messages differ between the two sides", is.Diverged)
}

// judgeFault is about whether the fault was a fault, and how long it was felt.
func (d *Drill) judgeFault(a *Account, l Limits, bad func(bool, string, ...any)) {
	limit, length := l.Recovery.Seconds(), 0.0
	if !d.Fault.Until.IsZero() {
		length = d.Fault.Until.Sub(d.Fault.At).Seconds()
	}
	switch d.Kind {
	case KillGateway:
		bad(!d.After.Process.After(d.Fault.At), "the process was not started again")
		bad(a.Disconnects == 0, "not measured: no client lost its connection")
		bad(a.Redial > l.Redial.Seconds(), "clients were without a connection for %.1f s, at most %v are allowed",
			a.Redial, l.Redial)
	case RestartWriter:
		bad(!d.After.Process.Equal(d.Before.Process), "the process was started again meanwhile")
		bad(d.After.Reopens != d.Before.Reopens+1, "the data directory was opened again %d times, not once",
			d.After.Reopens-d.Before.Reopens)
		limit = l.Redial.Seconds()
	case Partition:
		bad(a.Disconnects == 0, "not measured: no client lost its connection")
	case Stepdown:
		bad(d.Fault.Leads == "" || d.Fault.Leads == d.Fault.Led,
			"not measured: the leader was %q, and then %q", d.Fault.Led, d.Fault.Leads)
	}
	bad(a.Recovery > limit, "it took %.1f s until everything worked again, at most %.0f s are allowed",
		a.Recovery, limit)
	bad(a.Gap-length > limit, "nothing was acknowledged or delivered for %.1f s, at most %.0f s are allowed",
		a.Gap, limit+length)
}

// summary is the result of an exercise that was passed.
func (d *Drill) summary() string {
	a := d.Account
	out := fmt.Sprintf("lost 0, stored twice 0, again behind a confirmed ack 0; %d acknowledged, %d of them behind "+
		"the fault, %d attempts made again, %d redelivered; nothing came through for %.2f s at most",
		a.Published, a.After, a.Retried, a.Redelivered, a.Gap)
	if a.Recovery > 0 {
		out += fmt.Sprintf(", all worked again after %.2f s", a.Recovery)
	}
	if a.Disconnects > 0 {
		out += fmt.Sprintf(", a client had no connection for %.2f s", a.Redial)
	}
	if d.Fault.Detail != "" {
		out += "; " + d.Fault.Detail
	}
	return out
}
