package feed

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const allowedMethods = "GET, HEAD, OPTIONS"

// anyOrigin in Options.Origins lets all pages read, without cookies and other credentials of the browser's.
const anyOrigin = "*"

// shareWith says to the browser, if it asks for a page of another origin, that the page may read. Only browsers name an
// origin.
func (s *Server) shareWith(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	listed := func(allowed string) bool { return strings.EqualFold(strings.TrimSuffix(allowed, "/"), origin) }
	switch {
	case slices.ContainsFunc(s.o.Origins, listed):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
	case slices.Contains(s.o.Origins, anyOrigin):
		h.Set("Access-Control-Allow-Origin", anyOrigin)
	default:
		return errors.New("pages of this origin may not read feeds: list it in ehdb.feed.origins")
	}
	return nil
}

// preflight answers what a browser asks before a request with a login or a position.
func (*Server) preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Allow", allowedMethods)
	h.Set("Access-Control-Allow-Methods", allowedMethods)
	h.Set("Access-Control-Allow-Headers", "Authorization, Cache-Control, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
