// Command bench measures the gateway and a real nats-server side by side: every case runs on each server in
// alternation, several times in one run, so that a drift of the machine's speed meets all of them alike. What counts is
// the ratio of the medians. It prints a table and writes results.json and results.svg.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

func main() {
	runs := flag.Int("runs", 5, "counted runs of each case on each server")
	scale := flag.Float64("scale", 1, "multiplies the number of messages of every case")
	size := flag.Int("size", 128, "payload bytes")
	only := flag.String("only", "", "regular expression on the names of cases")
	dir := flag.String("out", "bench", "folder for results.json and results.svg")
	flag.Parse()
	if err := bench(*runs, *scale, *size, *only, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(runs int, scale float64, size int, only, dir string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(".", ".bench-") // not the system's temp directory: that may be in RAM
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	servers, err := buildServers(work)
	if err != nil {
		return err
	}
	var results []result
	for _, c := range cases {
		if !match.MatchString(c.name) {
			continue
		}
		r, err := measure(c, servers, runs, params{msgs: max(1, int(float64(c.msgs)*scale)), size: size})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
		fmt.Fprint(os.Stderr, ".")
	}
	fmt.Fprintln(os.Stderr)
	printTable(os.Stdout, results)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "results.json"), results); err != nil {
		return err
	}
	return writeSVG(filepath.Join(dir, "results.svg"), results)
}

// measure runs one case: a warm-up on each server, then runs counted rounds, in each of which the order of the servers
// turns by one.
func measure(c benchCase, servers []serverSpec, runs int, p params) (result, error) {
	r := result{Case: c.name, What: c.what, Messages: p.msgs, Size: p.size, Target: c.target, Against: c.against}
	rates := make(map[string][]float64)
	for round := -1; round < runs; round++ {
		for i := range servers {
			s := servers[(i+max(round, 0))%len(servers)]
			if c.skip != nil && c.skip(s) {
				continue
			}
			rate, err := once(c, s, p)
			if err != nil {
				return r, fmt.Errorf("on %s: %w", s.name, err)
			}
			if round >= 0 {
				rates[s.name] = append(rates[s.name], rate)
			}
		}
	}
	for _, s := range servers {
		if v := rates[s.name]; len(v) > 0 {
			r.Rates = append(r.Rates, rateOf{Server: s.name, Median: median(v), All: v})
		}
	}
	return r, nil
}

// once runs the case on a freshly started server and returns messages a second.
func once(c benchCase, s serverSpec, p params) (float64, error) {
	srv, err := s.start()
	if err != nil {
		return 0, err
	}
	defer srv.stop()
	took, n, err := c.run(srv.url, p)
	if err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// params are a case's size.
type params struct {
	msgs, size int
}

// benchCase is one measurement. run sets up, measures from the first message to the last that counts, and returns the
// time and the number of messages.
type benchCase struct {
	name, what string
	msgs       int
	target     float64 // the ratio aimed at, against the server named in against
	against    string
	skip       func(serverSpec) bool
	run        func(url string, p params) (time.Duration, int, error)
}
