// Package window knows when changes are allowed: times of days of the week, in a place.
package window

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // machines without zones know them all the same
)

// Windows are those in which changes are allowed; none: always.
type Windows []Window

// Window is one of them.
type Window struct {
	text     string
	days     [7]bool // by time.Weekday, of the day on which it begins
	from, to int     // minutes of a day; to is on the next day where it is not behind from
	zone     *time.Location
}

const (
	minutes = 24 * 60 // of a day
	example = `"Mon-Fri 09:00-16:00 Europe/London", "Sat,Sun 22:00-04:00" (UTC) or "* 10:00-12:00"`
)

var names = [7]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// Parse takes a window as days, times and a zone: "Mon-Fri 09:00-16:00 Europe/London". Days are three letters, a range
// or a list, or * for all; without a zone it is UTC. One that ends before it begins ends on the next day.
func Parse(text string) (Window, error) {
	w := Window{text: text, zone: time.UTC}
	parts := strings.Fields(text)
	if len(parts) < 2 || len(parts) > 3 {
		return w, fmt.Errorf("%q is no window: give days, times and a zone, as %s", text, example)
	}
	if err := w.takeDays(parts[0]); err != nil {
		return w, err
	}
	from, to, ok := strings.Cut(parts[1], "-")
	a, err := time.Parse("15:04", from)
	b, err2 := time.Parse("15:04", strings.Replace(to, "24:00", "00:00", 1))
	if !ok || err != nil || err2 != nil {
		return w, fmt.Errorf("%q: %q are no times: give them as 09:00-16:00", text, parts[1])
	}
	w.from, w.to = a.Hour()*60+a.Minute(), b.Hour()*60+b.Minute()
	if len(parts) == 3 { //nolint:mnd // with a zone
		if w.zone, err = time.LoadLocation(parts[2]); err != nil {
			return w, fmt.Errorf("%q: there is no zone %q: give it as Europe/London", text, parts[2])
		}
	}
	return w, nil
}

func (w *Window) takeDays(text string) error {
	if text == "*" {
		w.days = [7]bool{true, true, true, true, true, true, true}
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, b := slices.Index(names[:], first), slices.Index(names[:], last)
		if a < 0 || b < 0 {
			return fmt.Errorf("%q: %q is no day: give %s, Mon-Fri or *", w.text, part, strings.Join(names[:], ", "))
		}
		for d := a; ; d = (d + 1) % len(names) {
			w.days[d] = true
			if d == b {
				break
			}
		}
	}
	return nil
}

// String is the window as it was given.
func (w *Window) String() string { return w.text }

// Open reports whether it is open at a time.
func (w *Window) Open(t time.Time) bool {
	t = t.In(w.zone)
	now, today := t.Hour()*60+t.Minute(), int(t.Weekday())
	if w.from < w.to {
		return w.days[today] && now >= w.from && now < w.to
	}
	before := (today + 6) % 7
	return w.days[today] && now >= w.from || w.days[before] && now < w.to
}

// Open reports whether one of them is open at a time.
func (l Windows) Open(t time.Time) bool {
	return len(l) == 0 || slices.ContainsFunc(l, func(w Window) bool { return w.Open(t) })
}

// Next is when one opens or closes behind a time, to the minute; zero: it never does.
func (l Windows) Next(t time.Time) time.Time {
	now := l.Open(t)
	at := t.Truncate(time.Minute)
	for range 8 * minutes { // days and times come again after a week
		if at = at.Add(time.Minute); l.Open(at) != now {
			return at
		}
	}
	return time.Time{}
}

// String lists them.
func (l Windows) String() string {
	parts := make([]string, len(l))
	for i := range l {
		parts[i] = l[i].text
	}
	return strings.Join(parts, "; ")
}
