package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/subjects"
)

// EHDB is the ehdb {} block: what nats-server has no key for. Zero values mean the default of whoever uses them.
type EHDB struct {
	Shards      int                // shards of the data directory
	Map         *subjects.ShardMap // the subject map; nil: none
	QueueBytes  int64              // bound of one shard's queue
	StallBytes  int64              // where producers are asked to pause
	WindowBytes int64              // recent records kept in RAM for readers
	Memory      int64              // bytes of RAM for sealed records and for the index of what is not sealed
	SealMaxAge  time.Duration      // how long a record may stay in the write-ahead log
	SealBytes   int64              // how much may stay there
	MetricsPort int                // a second port for /metrics; 0: none, -1: any free one
	LogFormat   string             // "text" (nats-server's) or "json"
	Subjects    []string           // subjects that get a lag series of their own
	TopTalkers  int                // accounts, users and subjects with most traffic that have series; 0: none
	TopTokens   int                // of how many tokens of a subject these tell
	Upstreams   []Upstream         // other servers whose streams may be mirrored and sourced
	Feed        *Feed              // nil: off

	AllowStandalone bool // start alone though cluster {} names other servers
	AllowTmpStore   bool // keep the store below the temporary directory
}

const (
	maxShards  = 1024
	maxTokens  = 255
	minQueue   = 1 << 20
	minMemory  = 16 << 20
	minSealAge = 100 * time.Millisecond
	maxSealAge = time.Hour
	maxBytes   = 1 << 40
	maxPort    = 65535

	defaultTalkers, maxTalkers     = 10, 100
	defaultTopTokens, maxTopTokens = 2, 16

	formatText  = "text"
	formatJSON  = "json"
	sizeExample = "a size such as 64MiB"
)

// ehdb reads the ehdb {} block.
func (d *decoder) ehdb(v any) EHDB {
	e := EHDB{LogFormat: formatText, TopTalkers: defaultTalkers, TopTokens: defaultTopTokens}
	var rules []rule
	size := func(to *int64) func(field) { return func(f field) { f.size(to, minQueue) } }
	whole := func(to *int, low, high int64) func(field) {
		return func(f field) {
			if n, ok := f.number(low, high, "a whole number"); ok {
				*to = int(n)
			}
		}
	}
	d.block("ehdb", v, map[string]func(field){
		"shards":           whole(&e.Shards, 1, maxShards),
		"queue_bytes":      size(&e.QueueBytes),
		"stall_bytes":      size(&e.StallBytes),
		"window_bytes":     size(&e.WindowBytes),
		"memory":           func(f field) { f.size(&e.Memory, minMemory) },
		"seal_max_age":     func(f field) { f.duration(&e.SealMaxAge, minSealAge, maxSealAge) },
		"seal_bytes":       size(&e.SealBytes),
		"metrics_port":     whole(&e.MetricsPort, -1, maxPort),
		"log_format":       func(f field) { f.text(&e.LogFormat, formatText, formatJSON) },
		"allow_standalone": func(f field) { f.boolean(&e.AllowStandalone) },
		"allow_tmp_store":  func(f field) { f.boolean(&e.AllowTmpStore) },
		"top_talkers":      whole(&e.TopTalkers, 0, maxTalkers),
		"top_tokens":       whole(&e.TopTokens, 1, maxTopTokens),
		"subjects":         func(f field) { e.Subjects = f.filters() },
		"upstreams":        func(f field) { e.Upstreams = d.upstreams(f) },
		"feed":             func(f field) { e.Feed = d.feed(f) },
		"map": func(f field) {
			for _, r := range f.list() {
				rules = append(rules, rule{r, d.mapRule(r)})
			}
		},
	})
	e.LogFormat = strings.ToLower(e.LogFormat)
	tk, _ := unwrap(v)
	if e.StallBytes > 0 && e.QueueBytes > 0 && e.StallBytes > e.QueueBytes {
		d.errorf(tk, "ehdb.stall_bytes (%d) is above ehdb.queue_bytes (%d)", e.StallBytes, e.QueueBytes)
	}
	e.Map = d.shardMap(tk, e.Shards, rules)
	return e
}

// size takes a number of bytes.
func (f field) size(to *int64, low int64) {
	if n, ok := f.number(low, maxBytes, sizeExample); ok {
		*to = n
	}
}

// rule is one rule of ehdb.map and its place.
type rule struct {
	at   field
	rule subjects.ShardRule
}

// shardMap makes the subject map. Rules are added one by one, so that a complaint has the place of its rule.
func (d *decoder) shardMap(tk token, shards int, rules []rule) *subjects.ShardMap {
	if len(rules) == 0 {
		return nil
	}
	if shards == 0 {
		d.errorf(tk, "ehdb.map needs ehdb.shards: its rules name shards")
		return nil
	}
	var m *subjects.ShardMap
	var good []subjects.ShardRule
	for _, r := range rules {
		if r.rule.Shards == nil {
			for i := range shards {
				r.rule.Shards = append(r.rule.Shards, i)
			}
		}
		next, err := subjects.NewShardMap(shards, append(good, r.rule))
		if err != nil {
			r.at.errorf("%w", err)
			continue
		}
		m, good = next, append(good, r.rule)
	}
	return m
}

// filters takes one subject filter or a list of them.
func (f field) filters() []string {
	var out []string
	for _, e := range f.list() {
		var s string
		if e.text(&s); s == "" {
			continue
		}
		if !subjects.ValidFilter(s) {
			e.errorf("%q is not a valid subject", s)
			continue
		}
		out = append(out, s)
	}
	return out
}

// mapRule reads one rule of ehdb.map. No shards means all of them.
func (d *decoder) mapRule(f field) (r subjects.ShardRule) {
	d.block(f.path, wrapped(f), map[string]func(field){
		"subject": func(f field) { f.text(&r.Filter) },
		"shard":   func(f field) { r.Shards = f.numbers(0, maxShards-1, "a shard number") },
		"shards": func(f field) {
			if f.val != "all" {
				r.Shards = f.numbers(0, maxShards-1, `shard numbers such as "0,2" or "0-3", or all`)
			}
		},
		"tokens": func(f field) {
			r.Tokens = f.numbers(1, maxTokens, `positions of tokens, from 1, such as 2 or "2,3"`)
		},
	})
	return r
}

// wrapped is f's value as block takes it.
func wrapped(f field) any {
	if f.tk != nil {
		return elem{f.tk, f.val}
	}
	return f.val
}

// elem is a value with the place of its surroundings.
type elem struct {
	token
	val any
}

func (e elem) Value() any { return e.val }

// numbers takes one number, or several: as text ("0,2" or "0-3"), or as a list of such. (The file format has no lists
// of bare numbers inside blocks of a list.)
func (f field) numbers(low, high int64, unit string) []int {
	var out []int
	for _, e := range f.list() {
		text, ok := e.val.(string)
		if !ok {
			if n, ok := e.number(low, high, unit); ok {
				out = append(out, int(n))
			}
			continue
		}
		for part := range strings.SplitSeq(text, ",") {
			from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
			if !isRange {
				to = from
			}
			a, errA := strconv.ParseInt(from, 10, 64)
			b, errB := strconv.ParseInt(to, 10, 64)
			if errA != nil || errB != nil || a < low || b > high || a > b {
				e.errorf("expected %s, got %v", unit, e.val)
				return nil
			}
			for n := a; n <= b; n++ {
				out = append(out, int(n))
			}
		}
	}
	return out
}
