package config

import (
	"errors"
	"net/http"
	"net/url"
	"time"
)

// Feed is the ehdb.feed {} block: streams as server-sent events on the monitoring port. Zero values mean the default.
type Feed struct {
	MaxConnections int           // feeds open at a time
	Heartbeat      time.Duration // how often a feed is sent a comment
	Origins        []string      // of web pages that may read feeds: https://host, or "*"
	Cookie         string        // name of a cookie that may hold a token or JWT
}

const (
	maxFeeds     = 1 << 20
	minHeartbeat = time.Second
	maxHeartbeat = time.Minute
)

// errFeedPort refuses feeds without a port to serve them on.
var errFeedPort = errors.New(
	"ehdb.feed needs the monitoring port, on which feeds are: set http_port (-m) or https_port")

// feed reads ehdb.feed.
func (d *decoder) feed(f field) *Feed {
	out := &Feed{}
	d.block(f.path, wrapped(f), map[string]func(field){
		"max_connections": func(f field) {
			if n, ok := f.number(1, maxFeeds, "a whole number"); ok {
				out.MaxConnections = int(n)
			}
		},
		"heartbeat": func(f field) { f.duration(&out.Heartbeat, minHeartbeat, maxHeartbeat) },
		"origins":   func(f field) { out.Origins = f.origins() },
		"cookie": func(f field) {
			f.text(&out.Cookie)
			if _, err := http.ParseCookie(out.Cookie + "=x"); err != nil {
				f.errorf("%q cannot be the name of a cookie", out.Cookie)
			}
		},
	})
	return out
}

// origins takes one origin of web pages or a list of them.
func (f field) origins() []string {
	var out []string
	for _, e := range f.list() {
		var s string
		if e.text(&s); s == "" {
			continue
		}
		u, err := url.Parse(s)
		if s != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" && u.Path != "/") {
			e.errorf(`%q is not an origin such as "https://app.example.com", nor "*"`, s)
			continue
		}
		out = append(out, s)
	}
	return out
}
