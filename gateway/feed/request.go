package feed

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/subjects"
)

// request is what a client asks for.
type request struct {
	account, stream string
	from            From
	resumes         bool // behind Last-Event-ID
	format          format
	login           auth.Credentials
}

// The parameters of the query.
const (
	paramFilter = "filter"        // a subject, with wildcards; may be there several times
	paramPolicy = "deliver"       // a Policy
	paramSeq    = "start_seq"     // of by_start_sequence
	paramTime   = "start_time"    // of by_start_time, RFC 3339
	paramLastID = "last_event_id" // for clients that cannot set the header
	paramFormat = "format"        // raw, json
	paramToken  = "access_token"  // for clients that can set neither header nor cookie
)

var params = []string{paramFilter, paramPolicy, paramSeq, paramTime, paramLastID, paramFormat, paramToken}

const maxFilters = 64

// parseRequest reads a request. cookie is the name of the cookie that may hold a token; empty: none.
func parseRequest(r *http.Request, cookie string) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, list := range values {
		switch {
		case !slices.Contains(params, name):
			return nil, fmt.Errorf("parameter %q is not known; there are %s", name, strings.Join(params, ", "))
		case len(list) > 1 && name != paramFilter:
			return nil, fmt.Errorf("parameter %q is given %d times", name, len(list))
		}
	}
	q := &request{account: r.PathValue("account"), stream: r.PathValue("stream"), format: formatRaw}
	if f := format(values.Get(paramFormat)); f != "" {
		if f != formatRaw && f != formatJSON {
			return nil, fmt.Errorf("format %q is not known; there are %s and %s", f, formatRaw, formatJSON)
		}
		q.format = f
	}
	q.from.Filters = values[paramFilter]
	if len(q.from.Filters) > maxFilters {
		return nil, fmt.Errorf("%d filters: %d are the most", len(q.from.Filters), maxFilters)
	}
	for _, f := range q.from.Filters {
		if !subjects.ValidFilter(f) {
			return nil, fmt.Errorf("filter %q is not a valid subject", f)
		}
	}
	if err := q.begin(values); err != nil {
		return nil, err
	}
	lastID := r.Header.Get("Last-Event-ID")
	if lastID == "" {
		lastID = values.Get(paramLastID)
	}
	if err := q.resume(lastID); err != nil {
		return nil, err
	}
	q.login = credentials(r, cookie, values.Get(paramToken))
	return q, nil
}

// begin reads where a new feed begins.
func (q *request) begin(values url.Values) error {
	seq, at := values.Get(paramSeq), values.Get(paramTime)
	implied := DeliverAll
	switch {
	case seq != "" && at != "":
		return errors.New("start_seq and start_time contradict each other")
	case seq != "":
		implied = DeliverByStartSequence
		n, err := strconv.ParseUint(seq, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("start_seq %q is not a sequence: they are whole numbers from 1", seq)
		}
		q.from.Seq = n
	case at != "":
		implied = DeliverByStartTime
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return fmt.Errorf("start_time %q is not a time as 2026-01-02T15:04:05Z", at)
		}
		q.from.Time = t
	}
	q.from.Policy = Policy(values.Get(paramPolicy))
	switch q.from.Policy {
	case "":
		q.from.Policy = implied
	case DeliverAll, DeliverNew, DeliverLast, DeliverLastPerSubject:
		if implied != DeliverAll {
			return fmt.Errorf("deliver=%s and a start_seq or start_time contradict each other", q.from.Policy)
		}
	case DeliverByStartSequence, DeliverByStartTime:
		if q.from.Policy != implied {
			return fmt.Errorf("deliver=%s needs its start_seq or start_time", q.from.Policy)
		}
	default:
		return fmt.Errorf("deliver %q is not known; there are %s, %s, %s, %s, %s, %s", q.from.Policy,
			DeliverAll, DeliverNew, DeliverLast, DeliverLastPerSubject, DeliverByStartSequence, DeliverByStartTime)
	}
	return nil
}

// resume goes on behind an event, wherever a new feed would begin.
func (q *request) resume(lastID string) error {
	if lastID == "" {
		return nil
	}
	n, err := strconv.ParseUint(lastID, 10, 63)
	if err != nil {
		return fmt.Errorf("Last-Event-ID %q is no id of a feed: they are sequences of the stream", lastID)
	}
	q.resumes, q.from.Policy, q.from.Seq = true, DeliverByStartSequence, n+1
	return nil
}

// credentials returns the login that a request carries: a Basic or Bearer Authorization, else the cookie, else token.
// For users that are restricted to some types of connections a feed is one by WebSocket.
func credentials(r *http.Request, cookie, token string) auth.Credentials {
	c := auth.Credentials{Type: auth.TypeWebSocket, Host: r.RemoteAddr, Name: "feed", TLS: r.TLS}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.Host = host
	}
	if user, password, ok := r.BasicAuth(); ok {
		c.User, c.Password = user, password
		return c
	}
	const bearer = "bearer "
	if h := r.Header.Get("Authorization"); len(h) > len(bearer) && strings.EqualFold(h[:len(bearer)], bearer) {
		token = strings.TrimSpace(h[len(bearer):])
	} else if cookie != "" {
		if held, err := r.Cookie(cookie); err == nil {
			token = held.Value
		}
	}
	if strings.Count(token, ".") == 2 { //nolint:mnd // header, claims and signature
		c.JWT = token
	} else {
		c.Token = token
	}
	return c
}
