package feed

import (
	"net/http"
	"net/url"
	"testing"
)

// FuzzRequest: whatever a client asks for is refused or is a request with valid subjects and one place to begin at.
func FuzzRequest(f *testing.F) {
	for _, s := range [][3]string{
		{"", "", ""},
		{"filter=a.>&filter=b&deliver=new", "", "Bearer x"},
		{"start_seq=7&format=json", "12", "Basic dTpw"},
		{"start_time=2026-01-02T15:04:05Z", "", "bearer a.b.c"},
		{"deliver=by_start_sequence", "-1", ""},
		{"last_event_id=18446744073709551615&access_token=x", "", ""},
		{"%zz", "9223372036854775807", "Basic !"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, query, lastID, authorization string) {
		r := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/feed/A/S", RawQuery: query}, RemoteAddr: "127.0.0.1:1",
			Header: http.Header{"Last-Event-Id": {lastID}, "Authorization": {authorization}},
		}
		q, err := parseRequest(r, "token")
		if err != nil {
			return
		}
		if len(q.from.Filters) > maxFilters || q.from.Policy == "" || q.format == "" {
			t.Errorf("%q: %+v", query, q)
		}
		if q.from.Policy == DeliverByStartSequence && q.from.Seq == 0 {
			t.Errorf("%q, %q: begins at sequence 0", query, lastID)
		}
	})
}
