package console

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// maxAround is how many connections of an account are listed.
const maxAround = 20

// BypassTone is that of the connections of an account.
func (v *view) BypassTone(b *face.BypassState) tone {
	switch {
	case b.Unknown != "":
		return stale
	case len(b.Around) > 0:
		return bad
	default:
		return v.fresh(b.At, maxAge)
	}
}

// Around are the connections that are listed.
func (*view) Around(b *face.BypassState) []face.Connection {
	return b.Around[:min(len(b.Around), maxAround)]
}

// ServerTone is that of a server upstream.
func (v *view) ServerTone(s *face.ServerState) tone {
	switch {
	case s.Dials == 0:
		return idle
	case !s.Reachable:
		return bad
	default:
		return v.fresh(v.Status.At, maxAge)
	}
}

// maxScrape is how long ago an autoscaler may have asked: twice KEDA's pollingInterval.
const maxScrape = time.Minute

// ScrapeTone is that of a program that reads the figures of consumers.
func (v *view) ScrapeTone(s *face.Scrape) tone {
	if v.Now.Sub(s.At) > maxScrape {
		return warn
	}
	return v.fresh(v.Status.At, maxAge)
}

// timeline is what happened, the latest first.
func timeline(events []face.Event) []face.Event {
	out := slices.Clone(events)
	slices.SortStableFunc(out, func(a, b face.Event) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.ID, a.ID))
	})
	return out[:min(len(out), maxEvents)]
}

// lane is a kind of latency with both sides over one scale.
type lane struct {
	Kind  string
	Sides []track
	Ratio string // of EHDB's p99 to that of NATS; "": one of them says nothing
}

// track is one side in a lane: from p50 to p99.9, with p99 marked, on a logarithmic scale.
type track struct {
	face.Latency
	Masked         bool
	X, Width, Mark float64
	Y              int
}

// The scale of latencies, in seconds, over segmentsWidth.
const (
	scaleFrom, scaleTo = 10e-6, 10
	trackHeight        = 14
	thinnest           = 6
)

func scaled(seconds float64) float64 {
	at := math.Log(max(seconds, scaleFrom)/scaleFrom) / math.Log(scaleTo/scaleFrom)
	return min(at, 1) * segmentsWidth
}

// Lanes are the latencies, side by side.
func (s *stream) Lanes() (out []lane) {
	for i := range s.Latency {
		l := &s.Latency[i]
		at := slices.IndexFunc(out, func(x lane) bool { return x.Kind == l.Kind })
		if at < 0 {
			at = len(out)
			out = append(out, lane{Kind: l.Kind})
		}
		x := scaled(l.P50)
		out[at].Sides = append(out[at].Sides, track{
			Latency: *l, Masked: s.Masked(l), X: x, Width: max(scaled(l.P999)-x, thinnest), Mark: scaled(l.P99),
			Y: len(out[at].Sides) * trackHeight,
		})
	}
	for i := range out {
		out[i].Ratio = ratio(out[i].Sides)
	}
	return out
}

// Height is that of a lane's picture.
func (l *lane) Height() int { return len(l.Sides) * trackHeight }

func ratio(list []track) string {
	var nats, ehdb *track
	for i := range list {
		switch t := &list[i]; {
		case t.Masked || t.N == 0:
		case t.Side == "nats":
			nats = t
		case t.Side == "ehdb":
			ehdb = t
		}
	}
	if nats == nil || ehdb == nil || nats.P99 == 0 {
		return ""
	}
	return figure(ehdb.P99 / nats.P99)
}
