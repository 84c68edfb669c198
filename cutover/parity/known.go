package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Known is a divergence that somebody has looked at and lives with, until it expires. Its sequences count as ignored.
type Known struct {
	Name    string        `json:"name"`
	Scope   cutover.Scope `json:"scope"`
	First   uint64        `json:"first"`
	Last    uint64        `json:"last"`
	Reason  string        `json:"reason"`
	Expires time.Time     `json:"expires"`
}

// maxKnown bounds the list: what needs more is not known, it is broken.
const maxKnown = 1000

// knowns is the list of known divergences, kept in a file.
type knowns struct {
	file string // "": not kept

	mu   sync.Mutex
	list []Known
}

// knownFile is its name in Options.Dir.
const knownFile = "known-divergences.json"

func (k *knowns) load(dir string) error {
	if dir == "" {
		return nil
	}
	k.file = filepath.Join(dir, knownFile)
	b, err := os.ReadFile(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &k.list)
	}
	if err != nil {
		return fmt.Errorf("the known divergences in %s cannot be read: %w", k.file, err)
	}
	return nil
}

// save writes the list. mu is held.
func (k *knowns) save() error {
	if k.file == "" {
		return nil
	}
	b, err := json.MarshalIndent(k.list, "", "  ")
	if err != nil {
		return err
	}
	return cutover.WriteFile(k.file, b)
}

func (k *knowns) add(n Known, now time.Time) error {
	switch {
	case n.Name == "" || n.Reason == "":
		return errors.New("a known divergence needs a name and a reason")
	case n.First == 0 || n.Last < n.First:
		return errors.New("a known divergence needs the first and the last sequence that it is about")
	case !n.Expires.After(now):
		return errors.New("a known divergence needs a time in the future at which it expires")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(o Known) bool { return o.Name == n.Name && o.Scope == n.Scope })
	if len(k.list) >= maxKnown {
		return errors.New("there are too many known divergences: reset and fill the copy anew")
	}
	k.list = append(k.list, n)
	return k.save()
}

func (k *knowns) remove(scope cutover.Scope, name string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.list)
	k.list = slices.DeleteFunc(k.list, func(o Known) bool { return o.Name == name && o.Scope == scope })
	if len(k.list) == n {
		return false, nil
	}
	return true, k.save()
}

// expire takes out what has expired and returns the streams that it was about.
func (k *knowns) expire(now time.Time) []cutover.Scope {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []cutover.Scope
	k.list = slices.DeleteFunc(k.list, func(o Known) bool {
		gone := !o.Expires.After(now)
		if gone {
			out = append(out, o.Scope)
		}
		return gone
	})
	if len(out) > 0 {
		_ = k.save() // one that has expired expires again after a restart
	}
	return out
}

func (k *knowns) all() []Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list)
}

// of returns which sequences of a stream are known, nil for none.
func (k *knowns) of(scope cutover.Scope) func(uint64) bool {
	var ranges []Range
	for _, n := range k.all() {
		if n.Scope == scope {
			ranges = append(ranges, Range{n.First, n.Last})
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	return func(seq uint64) bool {
		return slices.ContainsFunc(ranges, func(r Range) bool { return r.First <= seq && seq <= r.Last })
	}
}
