package pilot

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// scaledFresh is for how long a look at autoscalers counts: every stream's gates ask.
const scaledFresh = 10 * time.Second

// scaled is the last look at them.
type scaled struct {
	mu       sync.Mutex // held while it is looked
	at       time.Time
	objects  int
	problems []string
	err      error
}

// autoscalers adds to who asks for figures what is wrong with the autoscalers themselves, where they can be looked at.
func (p *Pilot) autoscalers(ctx context.Context, c *collector) {
	if p.o.Autoscalers == nil {
		return
	}
	s := &p.scaled
	s.mu.Lock()
	if time.Since(s.at) > scaledFresh {
		s.objects, s.problems, s.err = p.o.Autoscalers(ctx)
		s.at = time.Now()
	}
	n, problems, err := s.objects, s.problems, s.err
	s.mu.Unlock()
	c.scaled(n, problems, err)
}

// scaled is what n ScaledObjects say, in which there are problems.
func (c *collector) scaled(n int, problems []string, err error) {
	f := c.facts[gate.Unwatched]
	switch {
	case err != nil:
		why := "HPAs, pauses and fallbacks are not looked at: " + err.Error()
		f.Detail = strings.TrimPrefix(f.Detail+"; "+why, "; ")
		if f.Lapsed != "" {
			f.Lapsed += "; " + why
		}
	case len(problems) > 0:
		f.Value, f.Lapsed, f.NotApplicable = f.Value+float64(len(problems)), "", ""
		f.Detail = strings.TrimPrefix(f.Detail+"; "+strings.Join(problems, "; "), "; ")
		f.N = max(f.N, uint64(n)) //nolint:gosec // not negative
	case n == 0 && f.Lapsed != "":
		c.none(gate.Unwatched, "no ScaledObject of this namespace scales by consumers, and nobody asks for figures")
		return
	}
	c.facts[gate.Unwatched] = f
}
