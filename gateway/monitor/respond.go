package monitor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// answer writes v as the monitoring pages do.
func (s *Server) answer(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.o.Logger.Error("Monitoring page could not be built", slog.Any("error", err))
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.send(w, http.StatusOK, b)
}

func (s *Server) send(w http.ResponseWriter, code int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.WriteHeader(code)
	s.write(w, b)
}

// badRequest answers with err as plain text.
func (s *Server) badRequest(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusBadRequest)
	s.write(w, []byte(err.Error()))
}

func (s *Server) write(w http.ResponseWriter, b []byte) {
	if _, err := w.Write(b); err != nil {
		s.o.Logger.Debug("Monitoring client went away", slog.Any("error", err))
	}
}

// query reads the arguments of a page and keeps the first complaint.
type query struct {
	values url.Values
	err    error
}

func queryOf(r *http.Request) *query { return &query{values: r.URL.Query()} }

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) fail(kind, name string, err error) {
	if q.err == nil {
		q.err = fmt.Errorf("Error decoding %s for '%s': %w", kind, name, err) // nats-server's text
	}
}

func (q *query) boolean(name string) bool {
	v := q.values.Get(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		q.fail("boolean", name, err)
	}
	return b
}

// subscriptions reads "subs", which is a boolean or "detail".
func (q *query) subscriptions() (list, detail bool) {
	if strings.EqualFold(q.text("subs"), "detail") {
		return false, true
	}
	return q.boolean("subs"), false
}

func (q *query) number(name string) int {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		q.fail("int", name, err)
	}
	return n
}

func (q *query) id(name string) uint64 {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		q.fail("uint64", name, err)
	}
	return n
}

func (q *query) state() server.ConnState {
	v := q.values.Get("state")
	switch strings.ToLower(v) {
	case "", "open":
	case "closed":
		return server.ConnClosed
	case "any", "all":
		return server.ConnAll
	default:
		if q.err == nil {
			q.err = fmt.Errorf("Error decoding state for %s", v) // nats-server's text
		}
	}
	return server.ConnOpen
}

// page cuts list to what offset and limit ask for.
func page[T any](list []T, offset, limit int) []T {
	from := min(max(offset, 0), len(list))
	return list[from : from+min(limit, len(list)-from)]
}
