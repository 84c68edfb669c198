package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// PartID numbers a part, from 1. A number is never used twice.
type PartID uint64

// Section is what the manifest knows of a part's section.
type Section struct {
	Log                 uint64
	Count, Keys         uint32
	FirstSeq, LastSeq   uint64
	FirstTime, LastTime int64
	Bytes               uint64
}

// Part is a live part.
type Part struct {
	ID       PartID
	Path     string // relative to the data directory, slash-separated
	Shard    uint32
	Size     int64 // of the file
	Sections []Section
}

// TombKey names the tombstones of one section.
type TombKey struct {
	Part PartID
	Log  uint64
}

// Tomb is the tombstones of one section, encoded by whoever gives them.
type Tomb struct {
	TombKey
	Blob []byte // empty: there are none any more
}

// Log is what is to be known about a log, or a state log, besides its records.
type Log struct {
	ID                 uint64
	Spec               []byte // the caller's: name, kind, shards
	FirstSeq, LastSeq  uint64 // head counters at the floor
	LastTime           int64
	Messages, Bytes    uint64
	Deleted            uint64
	Checkpoint         []byte // of a state log
	CheckpointPosition uint64 // in the tail; what is there below it is in Checkpoint
}

// State is what a manifest says. What State returns is a copy whose slices are shared and must not be changed.
type State struct {
	Parts    map[PartID]Part
	Tombs    map[TombKey][]byte
	Logs     map[uint64]Log
	Floor    uint64 // position in the tail; all below is in parts and checkpoints
	Store    []byte // the caller's, about the directory as a whole
	NextPart PartID // no part had this number or a higher one
	Edits    uint64 // how many there were in all

	paths map[string]PartID // of Parts
}

func newState() *State {
	return &State{
		Parts: map[PartID]Part{}, Tombs: map[TombKey][]byte{}, Logs: map[uint64]Log{}, NextPart: 1,
		paths: map[string]PartID{},
	}
}

func (s *State) clone() State {
	c := *s
	c.paths = nil
	c.Parts, c.Tombs, c.Logs = maps.Clone(s.Parts), maps.Clone(s.Tombs), maps.Clone(s.Logs)
	return c
}

// Edit is one atomic change. Nil and empty fields change nothing.
type Edit struct {
	DropParts []PartID // with their tombstones; before AddParts
	AddParts  []Part   // with numbers from NewPart
	Tombs     []Tomb   // replace those of the same section
	Logs      []Log    // new ones, and replacements
	DropLogs  []uint64 // before Logs
	Floor     uint64   // 0: as it was. It never goes back
	Store     []byte   // nil: as it was
}

// ErrEdit is wrapped by the error for an edit that contradicts the state. Nothing was written.
var ErrEdit = errors.New("edit does not fit the manifest")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrEdit, fmt.Errorf(format, args...))
}

// check reports why e cannot be applied to s. fresh tells whether a number is free for a new part.
func (s *State) check(e *Edit, fresh func(PartID) bool) error {
	gone := map[PartID]bool{}
	for _, id := range e.DropParts {
		if _, ok := s.Parts[id]; !ok || gone[id] {
			return refuse("part %d to drop is not live", id)
		}
		gone[id] = true
	}
	added, err := s.checkAdded(e, gone, fresh)
	if err != nil {
		return err
	}
	for _, t := range e.Tombs {
		p, ok := added[t.Part]
		if !ok {
			p, ok = s.Parts[t.Part]
		}
		has := slices.ContainsFunc(p.Sections, func(sec Section) bool { return sec.Log == t.Log })
		if !ok || gone[t.Part] || !has {
			return refuse("tombstones for log %d of part %d, which is not live", t.Log, t.Part)
		}
	}
	for _, id := range e.DropLogs {
		if _, ok := s.Logs[id]; !ok {
			return refuse("log %d to drop is not there", id)
		}
	}
	if e.Floor != 0 && e.Floor < s.Floor {
		return refuse("floor %d is below %d", e.Floor, s.Floor)
	}
	return nil
}

func (s *State) checkAdded(e *Edit, gone map[PartID]bool, fresh func(PartID) bool) (map[PartID]Part, error) {
	added := map[PartID]Part{}
	paths := map[string]bool{} // of added
	for _, p := range e.AddParts {
		if _, twice := added[p.ID]; twice || !fresh(p.ID) || p.ID == 0 || p.ID == ^PartID(0) {
			return nil, refuse("part number %d was used before or not given out (next is %d)", p.ID, s.NextPart)
		}
		if id, ok := s.paths[p.Path]; p.Path == "" || paths[p.Path] || ok && !gone[id] {
			return nil, refuse("part %d has the path %q, which another live one has, or none", p.ID, p.Path)
		}
		seen := map[uint64]bool{}
		for _, sec := range p.Sections {
			if seen[sec.Log] || sec.Count == 0 || sec.LastSeq < sec.FirstSeq {
				return nil, refuse("part %d: section of log %d is empty, backwards or there twice", p.ID, sec.Log)
			}
			seen[sec.Log] = true
		}
		paths[p.Path], added[p.ID] = true, p
	}
	return added, nil
}

// isLive is for numbers that are known to have been given out.
func (s *State) isLive(id PartID) bool {
	_, ok := s.Parts[id]
	return ok
}

// apply changes s by e, which fits.
func (s *State) apply(e *Edit) {
	if len(e.DropParts) > 0 {
		gone := map[PartID]bool{}
		for _, id := range e.DropParts {
			delete(s.paths, s.Parts[id].Path)
			delete(s.Parts, id)
			gone[id] = true
		}
		maps.DeleteFunc(s.Tombs, func(k TombKey, _ []byte) bool { return gone[k.Part] })
	}
	for _, p := range e.AddParts {
		s.Parts[p.ID] = p
		s.paths[p.Path] = p.ID
		s.NextPart = max(s.NextPart, p.ID+1)
	}
	for _, t := range e.Tombs {
		if len(t.Blob) == 0 {
			delete(s.Tombs, t.TombKey)
			continue
		}
		s.Tombs[t.TombKey] = t.Blob
	}
	for _, id := range e.DropLogs {
		delete(s.Logs, id)
	}
	for _, l := range e.Logs {
		s.Logs[l.ID] = l
	}
	if e.Floor != 0 {
		s.Floor = e.Floor
	}
	if e.Store != nil {
		s.Store = e.Store
	}
	s.Edits++
}

// asEdit returns the edit that makes s of an empty state, but for NextPart and Edits.
func (s *State) asEdit() *Edit {
	e := &Edit{Floor: s.Floor, Store: s.Store}
	for _, id := range slices.Sorted(maps.Keys(s.Parts)) {
		e.AddParts = append(e.AddParts, s.Parts[id])
	}
	for k, b := range s.Tombs {
		e.Tombs = append(e.Tombs, Tomb{k, b})
	}
	slices.SortFunc(e.Tombs, func(a, b Tomb) int {
		if a.Part < b.Part || a.Part == b.Part && a.Log < b.Log {
			return -1
		}
		return 1
	})
	for _, id := range slices.Sorted(maps.Keys(s.Logs)) {
		e.Logs = append(e.Logs, s.Logs[id])
	}
	return e
}
