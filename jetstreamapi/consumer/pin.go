package consumer

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// pinState is the request group that has the consumer for itself, with priority policy pinned_client.
type pinState struct {
	id      string
	group   string
	since   int64
	expires int64 // 0: no pin
}

// Pin says which client has a group to itself.
type Pin struct {
	Group string
	ID    string // that the client sends; empty: there is none
	Since time.Time
}

// adoptPin takes a pin over that was given elsewhere.
func (m *machine) adoptPin(now int64, p *Pin) {
	cfg := &m.set.cfg
	if p.ID == "" || cfg.PriorityPolicy != server.PriorityPinnedClient {
		return
	}
	m.pin = pinState{id: p.ID, group: p.Group, since: p.Since.UnixNano(), expires: after(now, int64(cfg.PinnedTTL))}
}

func (p *pinState) clear() { *p = pinState{} }

type turn uint8

const (
	turnMine  turn = iota // the request may have the message
	turnLater             // others first
	turnNever             // its pin is over
)

// pinTurn decides by the pin; where nobody is pinned yet, w is.
func (m *machine) pinTurn(now int64, w *waiting, needPin bool) turn {
	switch {
	case m.set.cfg.PriorityPolicy != server.PriorityPinnedClient:
		return turnMine
	case needPin && w.pin == "":
		m.assignPin(now, w)
		return turnMine
	case !needPin && w.pin == m.pin.id:
		return turnMine
	case !needPin && w.pin == "":
		return turnLater
	}
	return turnNever
}

func (m *machine) assignPin(now int64, w *waiting) {
	if w.group == "" {
		return
	}
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var id [22]byte
	for i := range id {
		id[i] = digits[m.rand()%uint64(len(digits))]
	}
	m.pin = pinState{id: string(id[:]), group: w.group, since: now, expires: after(now, int64(m.set.cfg.PinnedTTL))}
	w.pin = m.pin.id
	m.out.events = append(m.out.events, event{kind: eventPinned, group: w.group, reason: m.pin.id})
}

// unpin ends the pin; reason is "admin" or "timeout". It reports whether there was one.
func (m *machine) unpin(reason string) bool {
	if m.pin.id == "" {
		return false
	}
	m.out.events = append(m.out.events, event{kind: eventUnpinned, group: m.pin.group, reason: reason})
	m.pin.clear()
	return true
}

// pinnedSince returns when the pin was given; the zero time: there is none.
func (p *pinState) pinnedSince() time.Time {
	if p.since == 0 {
		return time.Time{}
	}
	return time.Unix(0, p.since).UTC()
}
