package pilot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// bakeFacts are about a stream that the gateway has the say about: how it did since, and who wants to give the way back
// up. What is asked of a copy does not arise there, for the gateway has the original.
func (p *Pilot) bakeFacts(c *collector, scope cutover.Scope, v *flip.View, q *question) {
	st, err := p.engine.Status(scope)
	if err != nil || v.Phase != flip.PhaseEHDB {
		return
	}
	for _, name := range []string{
		gate.LagOfWindow, gate.LagOfFence, gate.QueueConserved, gate.QueueDropped, gate.QueueInline, gate.DedupMissing,
		gate.APIParity,
	} {
		c.none(name, "the gateway has the say: nothing is copied here, and clients are answered from here")
	}
	if v.OneWay {
		for _, name := range []string{
			gate.Accounted, gate.Examined, gate.OrganicHours, gate.Diverged, gate.DigestEqual, gate.ComparedAll,
			gate.Stranded, gate.Unbalanced, gate.Unseen, gate.NotCompared, gate.Inexact, gate.Silent, gate.Regressions,
		} {
			c.none(name, "the servers are not kept equal, so nothing is compared: "+q.noReverse)
		}
		c.none(gate.BypassHoles, "the servers are not kept equal, so nobody looks for what comes between")
	}
	const hoursOfDay = 24
	c.put(gate.BakeDays, c.now.Sub(st.Since).Hours()/hoursOfDay, "journal", "since "+st.Since.UTC().String())
	n := p.restarts(st)
	c.put(gate.BakeRestarts, float64(n), "journal", fmt.Sprintf("%d starts and passed drills since the flip", n))
	if r := st.Reverse; r != nil {
		c.put(gate.ReverseLag, float64(st.Here-min(st.Here, r.Position)), "chain", "")
		c.forked(r)
	}
	if p.o.Approvers {
		q.approver, q.approved = p.approved(scope, st.Since)
	}
	c.approval(q)
}

// approvalTime is for how long an approval counts.
const approvalTime = time.Hour

// approved is who has approved of giving up the way back of a stream last, since it was flipped, and when; nobody has:
// no name.
func (p *Pilot) approved(scope cutover.Scope, since time.Time) (by string, at *time.Time) {
	at = &time.Time{}
	for _, e := range p.engine.Journal() {
		if e.Event == flip.EventApproved && e.Scope == scope && e.Time.After(since) {
			by, *at = e.By, e.Time
		}
	}
	if by == "" {
		*at = time.Now()
	}
	return by, at
}

// Approve implements face.Engine.
func (p *Pilot) Approve(_ context.Context, scope cutover.Scope, by face.Actor) error {
	st, err := p.engine.Status(scope)
	if err != nil {
		return unknown(err)
	}
	if st.Phase != flip.PhaseEHDB {
		return fmt.Errorf("%w: %s is in phase %s: what is approved is that the way back of a stream which is served "+
			"from here is given up", face.ErrRefused, scope, st.Phase)
	}
	err = p.engine.Note(&flip.Entry{Scope: scope, Event: flip.EventApproved, By: by.By, Reason: by.Reason})
	p.wake()
	return err
}

// restarts counts how often the writer was started since a stream was flipped: starts of the process, and drills.
func (p *Pilot) restarts(st *flip.Status) (n int) {
	for _, e := range p.engine.Journal() {
		if e.Event == flip.EventStart && e.Time.After(st.Since) {
			n++
		}
	}
	for _, d := range p.drills.log.List() {
		if d.Kind == drill.RestartWriter && d.State == drill.Passed && d.Ended.After(st.Since) {
			n++
		}
	}
	return n
}

// forked is whether a message came between those that the chain publishes: it expects each sequence, so the first one
// stops it.
func (c *collector) forked(r *reverse.Status) {
	c.put(gate.BypassHoles, 0, "chain", "every message of the servers' stream is the gateway's")
	if errors.Is(r.Err, reverse.ErrForked) {
		c.put(gate.BypassHoles, 1, "chain", r.Err.Error())
	}
}

// ownApproval is what is wrong when who asks is who approves; empty: somebody else does.
func (q *question) ownApproval() string {
	if q.approver == "" || q.approver != q.by {
		return ""
	}
	return q.by + " asks for it (--by), and cannot be the second approver: the approver must be somebody else"
}

// approval is what people have to say about giving the way back up.
func (c *collector) approval(q *question) {
	if q.purpose != gate.Complete {
		return
	}
	wanted := func(name, why string) {
		c.put(name, 0, "operator", "")
		f := c.facts[name]
		f.Lapsed = why
		c.facts[name] = f
	}
	if c.put(gate.Credentials, 1, "operator", q.credentials); q.credentials == "" {
		wanted(gate.Credentials, "say which credentials of the servers are to be retired: ehdbctl complete --retire")
	}
	switch {
	case q.approved != nil && c.now.Sub(*q.approved) > approvalTime:
		wanted(gate.SecondApprover, fmt.Sprintf("%s approved it at %s, which counts for %v: ehdbctl approve",
			q.approver, q.approved.UTC().Format(time.DateTime), approvalTime))
	case q.approver == "" && q.approved != nil:
		wanted(gate.SecondApprover, "somebody who has the approvers' token, and is not who asks for it (--by), has to "+
			"approve it: ehdbctl approve")
	case q.approver == "":
		wanted(gate.SecondApprover, "somebody else than who asks for it (--by) has to approve it: ehdbctl complete "+
			"--approved-by")
	case q.approver == q.by:
		c.put(gate.SecondApprover, 0, "operator", q.ownApproval())
	case q.by == "": // who will ask is not known yet
		c.put(gate.SecondApprover, 1, "operator", q.approver+": somebody else (--by) has to ask for it")
	default:
		c.put(gate.SecondApprover, 1, "operator", q.approver)
	}
}
