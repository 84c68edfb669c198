package main

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// maxScrapers bounds the programs that are remembered: the one that was seen last goes first.
const maxScrapers = 64

// scrapes remembers who reads the figures that autoscalers read: an autoscaler that does not ask does not watch.
type scrapes struct {
	mu   sync.Mutex
	seen map[scraper]*face.Scrape
}

type scraper struct{ agent, host, page string }

// read implements monitor.Options.Read.
func (s *scrapes) read(page string, r *http.Request) {
	if page != server.JszPath && !strings.HasPrefix(page, lagPath) {
		return
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	const most = 80 // of a name that anybody may choose
	agent := r.UserAgent()
	k := scraper{agent[:min(len(agent), most)], host, page}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make(map[scraper]*face.Scrape)
	}
	one := s.seen[k]
	if one == nil {
		if len(s.seen) >= maxScrapers {
			s.forget()
		}
		one = &face.Scrape{Agent: k.agent, Addr: host, Page: page}
		s.seen[k] = one
	}
	one.At = time.Now()
	one.Count++
}

// forget drops the one that was seen least lately.
func (s *scrapes) forget() {
	var oldest scraper
	for k, one := range s.seen {
		if o := s.seen[oldest]; o == nil || one.At.Before(o.At) {
			oldest = k
		}
	}
	delete(s.seen, oldest)
}

// list is who was seen, the latest first.
func (s *scrapes) list() []face.Scrape {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]face.Scrape, 0, len(s.seen))
	for _, one := range s.seen {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b face.Scrape) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Agent+a.Addr+a.Page, b.Agent+b.Addr+b.Page))
	})
	return out
}

// counted tells of requests for a page that is not the monitor's own.
func (s *scrapes) counted(page string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.read(page, r)
		h.ServeHTTP(w, r)
	})
}
