// Package console is the page on which operators watch and steer the cutover: /console on the monitoring port. It
// shows what a face.Engine says, and changes nothing itself: its forms go to the API of cutover/face with the
// operator's token.
//
// Pages are rendered here and need no script to be read. With one they follow by server-sent events, and turn grey
// once the connection or the evidence is old.
package console

import (
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Path is where the console is served.
const Path = "/console"

// Options of a Console.
type Options struct {
	Engine       face.Engine
	Logger       *slog.Logger
	Now          func() time.Time // nil: time.Now
	Interval     time.Duration    // between two updates of a page that is open; 0: a second
	MaxListeners int              // pages that are open at a time and follow; 0: 32
}

const (
	defaultInterval  = time.Second
	defaultListeners = 32
	// patience is how long the engine may take to say how it stands.
	patience = 5 * time.Second
	// maxFindings and maxEvents are how many are listed.
	maxFindings = 50
	maxEvents   = 100
)

// Console serves the pages.
type Console struct {
	o         Options
	listeners chan struct{} // one in it for each
	closed    chan struct{}
	once      sync.Once

	turn   chan struct{} // held by who looks
	latest *look
}

// look is what was seen at a time.
type look struct {
	at       time.Time
	status   *face.Status // the last there was; nil: none yet
	err      error        // why there is no newer one
	findings []parity.Finding
	dropped  uint64
	events   []face.Event // the latest last
}

// New returns a console. It costs nothing while nobody looks.
func New(o Options) *Console {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.MaxListeners <= 0 {
		o.MaxListeners = defaultListeners
	}
	return &Console{
		o: o, listeners: make(chan struct{}, o.MaxListeners), closed: make(chan struct{}), turn: make(chan struct{}, 1),
		latest: &look{},
	}
}

// Routes returns the pages by path, for the monitor. Links between them are relative, so they work below any path.
func (c *Console) Routes() map[string]http.Handler {
	return map[string]http.Handler{
		Path:                 page(c.overview),
		Path + "/plan":       page(c.plan),
		Path + "/explain":    page(c.explain),
		Path + "/events":     http.HandlerFunc(c.follow),
		Path + "/console.js": file("console.js", "text/javascript; charset=utf-8"),
		Path + "/style.css":  file("style.css", "text/css; charset=utf-8"),
	}
}

// Close ends what follows, waits for it, and lets nobody follow again.
func (c *Console) Close() {
	c.once.Do(func() {
		close(c.closed)
		for range cap(c.listeners) {
			c.listeners <- struct{}{}
		}
	})
}

// look returns what is to be seen now. Those that ask at the same time share the answer.
func (c *Console) look(ctx context.Context) (look, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return look{}, ctx.Err()
	}
	if c.o.Now().Sub(c.latest.at) < c.o.Interval/2 {
		return *c.latest, nil
	}
	// Whoever asked first may go away, the others still want it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	next := &look{status: c.latest.status, events: c.latest.events}
	st, err := face.Overview(ctx, c.o.Engine)
	if err == nil {
		next.status = st
		next.events, err = c.news(ctx, next.events)
	}
	if next.err = err; err != nil {
		c.o.Logger.Warn("The console cannot show how the cutover stands", slog.Any("error", err))
	}
	if e := c.o.Engine.Parity(); e != nil {
		next.findings, next.dropped = e.Findings(parity.Query{Limit: maxFindings})
	}
	next.at = c.o.Now()
	c.latest = next
	return *next, nil
}

// news returns the latest events, given those that were the latest.
func (c *Console) news(ctx context.Context, had []face.Event) ([]face.Event, error) {
	const batch = 1000
	list := append([]face.Event(nil), had...)
	for {
		var after uint64
		if len(list) > 0 {
			after = list[len(list)-1].ID
		}
		more, err := c.o.Engine.Events(ctx, after, batch, false)
		if err != nil {
			return list, err
		}
		list = append(list, more...)
		list = list[max(len(list)-maxEvents, 0):]
		if len(more) < batch {
			return list, nil
		}
	}
}

//go:embed page
var files embed.FS

var pages = template.Must(template.New("").Funcs(helpers).ParseFS(files, "page/*.html"))

// file serves an embedded file.
func file(name, kind string) http.Handler {
	b, err := files.ReadFile("page/" + name)
	return page(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(b) // who asked has gone
	})
}

// policy lets a page use nothing but our own script, style and API.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// protect sets the headers of all answers.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// page serves what is only looked at.
func page(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is served here: changes go to "+face.Base, http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	})
}

// None are the pages of a gateway without a cutover, which say why there is none.
func None(why string) map[string]http.Handler {
	return map[string]http.Handler{
		Path: page(func(w http.ResponseWriter, r *http.Request) {
			send(w, http.StatusOK, "none.html", struct{ Root, Why string }{root(r), why})
		}),
		Path + "/style.css": file("style.css", "text/css; charset=utf-8"),
	}
}
