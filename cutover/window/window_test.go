package window

import (
	"strings"
	"testing"
	"time"
)

// Windows are open on their days, at their times, where they are, also beyond midnight and when clocks change.
func TestOpen(t *testing.T) {
	for _, tc := range []struct {
		text, at string
		open     bool
		next     string // when that changes; "": never
	}{
		{"Mon-Fri 09:00-16:00 Europe/London", "2026-11-30T09:00:00Z", true, "2026-11-30T16:00:00Z"}, // a Monday
		{"Mon-Fri 09:00-16:00 Europe/London", "2026-11-30T08:59:59Z", false, "2026-11-30T09:00:00Z"},
		{"Mon-Fri 09:00-16:00 Europe/London", "2026-11-30T16:00:00Z", false, "2026-12-01T09:00:00Z"},
		{"Mon-Fri 09:00-16:00 Europe/London", "2026-07-06T08:30:00Z", true, "2026-07-06T15:00:00Z"}, // in summer
		{"Mon-Fri 09:00-16:00 Europe/London", "2026-12-05T10:00:00Z", false, "2026-12-07T09:00:00Z"},
		{"Mon-Fri 09:00-16:00 America/New_York", "2026-11-30T20:30:00Z", true, "2026-11-30T21:00:00Z"},
		{"Fri-Mon 10:00-11:00", "2026-12-06T10:30:00Z", true, "2026-12-06T11:00:00Z"},
		{"Fri-Mon 10:00-11:00", "2026-12-08T10:30:00Z", false, "2026-12-11T10:00:00Z"},
		{"Sat,Sun 22:00-04:00", "2026-12-05T23:00:00Z", true, "2026-12-06T04:00:00Z"},
		{"Sat,Sun 22:00-04:00", "2026-12-07T03:59:00Z", true, "2026-12-07T04:00:00Z"}, // Sunday's
		{"Sat,Sun 22:00-04:00", "2026-12-05T03:00:00Z", false, "2026-12-05T22:00:00Z"},
		{"* 00:00-24:00", "2026-12-05T03:00:00Z", true, ""},
		{"Tue 12:00-24:00", "2026-12-01T23:59:00Z", true, "2026-12-02T00:00:00Z"},
	} {
		w, err := Parse(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tc.at)
		if err != nil {
			t.Fatal(err)
		}
		next := Windows{w}.Next(at)
		if got := next.UTC().Format(time.RFC3339); w.Open(at) != tc.open || tc.next != "" && got != tc.next || next.IsZero() != (tc.next == "") {
			t.Errorf("%s at %s: open %v, next %s", tc.text, tc.at, w.Open(at), got)
		}
	}
	if !(Windows{}).Open(time.Now()) {
		t.Error("without any it is always open")
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "is no window",
		"09:00-16:00":                "is no window",
		"Mon-Fri 09:00-16:00 UTC x":  "is no window",
		"Monday 09:00-16:00":         `"Monday" is no day`,
		"Mon-Fri 9-16":               "are no times",
		"Mon-Fri 09:00":              "are no times",
		"Mon-Fri 09:00-25:00":        "are no times",
		"Mon-Fri 09:00-16:00 London": `there is no zone "London"`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
