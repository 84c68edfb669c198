package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// parts are the sections of the overview that are sent when they have changed.
var parts = []string{"banner", "streams", "details", "around", "evidence", "timeline"}

// sendDeadline is how long a page may take to take an update.
const sendDeadline = 5 * time.Second

// update is what an open page is sent.
type update struct {
	At    time.Time         `json:"at"`
	Parts map[string]string `json:"parts,omitempty"` // rendered anew, by name
}

// follow keeps an open page up to date: at each interval an event, with the parts that have changed. A page to which
// none comes is stale.
func (c *Console) follow(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
		return
	}
	select {
	case c.listeners <- struct{}{}:
		defer func() { <-c.listeners }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d consoles are open already, which is the most there may be", cap(c.listeners)),
			http.StatusServiceUnavailable)
		return
	}
	for k, v := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
	} {
		w.Header().Set(k, v)
	}
	out := http.NewResponseController(w)
	t := time.NewTicker(c.o.Interval)
	defer t.Stop()
	sent := map[string]string{}
	next := "retry: 2000\n"
	for {
		event, err := c.next(r, sent)
		if err != nil {
			return // who listened has gone
		}
		if err := write(w, out, next+event); err != nil {
			return
		}
		next = ""
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		case <-c.closed:
			_ = write(w, out, "event: bye\ndata: the gateway stops\n\n") // it ends anyway
			return
		}
	}
}

// next is the event that is due. sent is what the page shows, and is brought up to date.
func (c *Console) next(r *http.Request, sent map[string]string) (string, error) {
	v, err := c.view(r)
	if err != nil {
		return "", err
	}
	v.Root = "" // the page is /console
	u := update{At: v.Now, Parts: map[string]string{}}
	for _, name := range parts {
		b, err := render(name, v)
		if err != nil {
			c.o.Logger.Error("A part of the console cannot be shown", slog.String("part", name), slog.Any("error", err))
			return "", err
		}
		if s := string(b); sent[name] != s {
			sent[name], u.Parts[name] = s, s
		}
	}
	b, err := json.Marshal(u)
	return "event: update\ndata: " + string(b) + "\n\n", err
}

func write(w http.ResponseWriter, out *http.ResponseController, s string) error {
	if err := out.SetWriteDeadline(time.Now().Add(sendDeadline)); err != nil {
		return err
	}
	if _, err := w.Write([]byte(s)); err != nil {
		return err
	}
	return out.Flush()
}
