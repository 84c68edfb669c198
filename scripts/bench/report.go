package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// result is one case's outcome, as results.json keeps it. Rates are messages a second.
type result struct {
	Case     string   `json:"case"`
	What     string   `json:"what"`
	Messages int      `json:"messages"`
	Size     int      `json:"payload_bytes"`
	Target   float64  `json:"target_ratio"`
	Against  string   `json:"target_against"`
	Rates    []rateOf `json:"rates"`
}

type rateOf struct {
	Server string    `json:"server"`
	Median float64   `json:"median"`
	All    []float64 `json:"all"`
}

func (r *result) rate(server string) float64 {
	for _, x := range r.Rates {
		if x.Server == server {
			return x.Median
		}
	}
	return 0
}

// ratio is the gateway's rate over server's, 0 when that was not measured.
func (r *result) ratio(server string) float64 {
	if other := r.rate(server); other > 0 {
		return r.rate(gateway) / other
	}
	return 0
}

func printTable(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "case\t%s/s\t%s/s\t%s/s\tratio\tratio (always)\taim\t\n", natsDefault, natsAlways, gateway)
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Case, count(r.rate(natsDefault)), count(r.rate(natsAlways)),
			count(r.rate(gateway)), times(r.ratio(natsDefault)), times(r.ratio(natsAlways)), r.verdict())
	}
	_ = w.Flush() // the table is for people; results.json is the record
}

// verdict says whether the ratio aimed at, if there is one, was reached.
func (r *result) verdict() string {
	if r.Against == "" {
		return "-"
	}
	word := "reached"
	if r.ratio(r.Against) < r.Target {
		word = "MISSED"
	}
	mark := ""
	if r.Against == natsAlways {
		mark = " (always)"
	}
	return fmt.Sprintf("≥ %.1f%s %s", r.Target, mark, word)
}

func count(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

func times(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func writeJSON(path string, results []result) error {
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// writeSVG draws each case's ratios as bars against a line at 1.
func writeSVG(path string, results []result) error {
	const width, left, row, unit = 860, 250, 44, 60.0
	var b strings.Builder
	height := row*len(results) + 60
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif"`,
		width, height)
	b.WriteString(` font-size="12"><text x="10" y="20" font-size="14">`)
	b.WriteString("ehdb-gateway over nats-server (median rates; longer is better)</text>")
	for i, r := range results {
		y := 36 + row*i
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`, y+18, r.What)
		bar(&b, left, y, unit*r.ratio(natsDefault), "#2b7bba", times(r.ratio(natsDefault))+" × default")
		bar(&b, left, y+17, unit*r.ratio(natsAlways), "#e08a2e", times(r.ratio(natsAlways))+" × sync: always")
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="30" x2="%d" y2="%d" stroke="#888" stroke-dasharray="3 3"/></svg>`,
		left+int(unit), left+int(unit), height-20)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func bar(b *strings.Builder, x, y int, length float64, colour, label string) {
	if length == 0 {
		return
	}
	length = min(length, 480)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.0f" height="14" fill="%s"/><text x="%.0f" y="%d">%s</text>`,
		x, y, length, colour, float64(x)+length+6, y+12, label)
}
