package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// helpers are what templates may call.
var helpers = template.FuncMap{
	"number": number[uint64], "count": number[int],
	"signed": func(n int64) string { return fmt.Sprintf("%+d", n) },
	"bytes":  size, "short": short, "ago": ago, "clock": clock, "stamp": stamp, "percent": percent,
	"upper":   strings.ToUpper,
	"seconds": func(s float64) string { return span(time.Duration(s * float64(time.Second))) },
	"figure":  func(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) },
	"first":   func(i int) bool { return i == 0 },
	"pick": func(cond bool, yes, no string) string {
		if cond {
			return yes
		}
		return no
	},
	"done": func(s string) bool { return s == "done" || s == "passed" },
	"na":   func(s gate.State) bool { return s == gate.NotApplicable },
	"scope": func(s cutover.Scope) string {
		if s.Stream == "" {
			return "–"
		}
		return s.String()
	},
	"slug":  func(s string) string { return strings.ReplaceAll(s, " ", "-") },
	"hash":  func(h uint64) string { return fmt.Sprintf("%016x", h) },
	"nanos": func(n int64) string { return time.Unix(0, n).UTC().Format(time.RFC3339Nano) },
	"side": func(name string, s *parity.Shown) any {
		return struct {
			Name  string
			Shown *parity.Shown
		}{name, s}
	},
}

// figure is a ratio to two digits.
func figure(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }

// number is n with its thousands apart.
func number[T uint64 | int](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

// short is a time in seconds, to three digits.
func short(s float64) string {
	switch {
	case s <= 0:
		return "0"
	case s < 1e-3:
		return strconv.FormatFloat(s*1e6, 'g', 3, 64) + " µs"
	case s < 1:
		return strconv.FormatFloat(s*1e3, 'g', 3, 64) + " ms"
	default:
		return strconv.FormatFloat(s, 'f', 1, 64) + " s"
	}
}

// ago is how long before now something was.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return span(max(now.Sub(then), 0))
}

func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d d", int(d/day))
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.TimeOnly)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
