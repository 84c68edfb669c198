package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Severity says how bad a finding is.
type Severity int

// Severities.
const (
	Note   Severity = iota // worth knowing; nothing is wrong
	Torn                   // what a crash leaves of bytes that were never acknowledged; the next start cuts it
	Damage                 // durable bytes are missing or wrong
)

// String returns the word for s.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Torn:
		return "torn tail"
	case Damage:
		return "damage"
	}
	return fmt.Sprintf("severity %d", int(s))
}

// MarshalJSON writes the word.
func (s Severity) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Finding is something that is not as it should be.
type Finding struct {
	Severity Severity   `json:"severity"`
	File     string     `json:"file"` // relative to the data directory
	Offset   int64      `json:"offset"`
	Length   int64      `json:"length,omitempty"` // bytes concerned; 0: not known
	What     string     `json:"what"`
	Affected []Affected `json:"affected,omitempty"`
	Remedy   string     `json:"remedy,omitempty"`
}

// Affected says what a finding means for one log.
type Affected struct {
	Log     uint64 `json:"log,omitempty"` // 0: not known which
	Name    string `json:"name,omitempty"`
	First   uint64 `json:"first_seq,omitempty"` // the sequences that are lost lie in [First, Last]; 0: not known
	Last    uint64 `json:"last_seq,omitempty"`
	Records uint64 `json:"records,omitempty"` // how many at most; 0: not known
	Bytes   uint64 `json:"bytes,omitempty"`   // of those records; 0: not known
	What    string `json:"what,omitempty"`    // where the fields do not say it
}

// String is the finding as a line or a few.
func (f *Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, offset %d: %s", f.Severity, f.File, f.Offset, f.What)
	for i := range f.Affected {
		fmt.Fprintf(&b, "\n  affected: %s", f.Affected[i].String())
	}
	if f.Remedy != "" {
		fmt.Fprintf(&b, "\n  remedy: %s", f.Remedy)
	}
	return b.String()
}

// String names the log, its sequences and what became of them.
func (a *Affected) String() string {
	var parts []string
	if a.Log != 0 {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("log %d %s", a.Log, a.Name)))
	}
	if a.First != 0 || a.Last != 0 {
		parts = append(parts, fmt.Sprintf("sequences %d to %d", a.First, a.Last))
	}
	switch {
	case a.Records == 1:
		parts = append(parts, "1 record")
	case a.Records > 1:
		parts = append(parts, fmt.Sprintf("%d records", a.Records))
	}
	if a.Bytes != 0 {
		parts = append(parts, fmt.Sprintf("%d bytes", a.Bytes))
	}
	if a.What != "" {
		parts = append(parts, a.What)
	}
	return strings.Join(parts, ", ")
}

// Remedies.
const (
	remedyRepair  = "restore the directory from a backup, or keep what is whole with: ehdbctl storage repair"
	remedyTorn    = "none needed: the gateway cuts it at its next start"
	remedyRestore = "put the file back from a backup of the same directory, or keep what is whole with: " +
		"ehdbctl storage repair"
	remedyNewer = "written by a newer version, or a defect: use the ehdbctl of the version that wrote it"
	remedyKey   = "restore the files KEYS and KEYS.copy as they were when it was written"
	remedyKeys  = "none needed: the gateway writes it again at its next start, as ehdbctl storage repair does"
)
