package face

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Load bounds what is measured of the load, by name (Loads).
type Load map[string]time.Duration

// Loads are what a load may be bounded by, and what each is.
var Loads = map[string]string{
	"pubp50": "how long the servers take to acknowledge a publish, median of the last ten seconds",
	"pubp99": "the same, 99th percentile",
	"rtt":    "round trip to the servers, median of the last ten seconds",
	"lag":    "how old messages are when copies that follow have them, 99th percentile of the last ten seconds",
}

// LoadOff is in the place of bounds where there are to be none.
const LoadOff = "off"

// ParseLoad takes bounds as pubp99=20ms,lag=5s; nothing, or LoadOff, is none.
func ParseLoad(text string) (Load, error) {
	out := Load{}
	if text == "" || text == LoadOff {
		return out, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if _, ok := Loads[name]; !ok {
			return nil, fmt.Errorf("%q is no load: give some of %s, as pubp99=20ms", part,
				strings.Join(slices.Sorted(maps.Keys(Loads)), ", "))
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("%s: %q is no duration, such as 20ms", name, value)
		}
		out[name] = d
	}
	return out, nil
}

// String is the bounds as ParseLoad takes them.
func (l Load) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, name+"="+l[name].String())
	}
	return strings.Join(parts, ",")
}

// Limits are the loads that copying gives way to, and at which it stops. What is nil is left as it is.
type Limits struct {
	Max      *string `json:"max_load,omitempty"`
	Critical *string `json:"critical_load,omitempty"`
}

// CheckLoads is why two bounds, as ParseLoad takes them, cannot be meant together: copying would be paused, until
// somebody resumes, before it gives way by itself.
func CheckLoads(most, critical string) error {
	above, err := ParseLoad(most)
	if err != nil {
		return fmt.Errorf("max_load: %w", err)
	}
	at, err := ParseLoad(critical)
	if err != nil {
		return fmt.Errorf("critical_load: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if above[name] > at[name] {
			return fmt.Errorf("critical_load %s=%v is below max_load %s=%v: copying would be paused before it "+
				"gives way; give a critical load that is higher", name, at[name], name, above[name])
		}
	}
	return nil
}

// Given reports whether one of them is.
func (l *Limits) Given() bool { return l.Max != nil || l.Critical != nil }

// settle makes them one text for each meaning.
func (l *Limits) settle() error {
	for name, text := range map[string]*string{"max_load": l.Max, "critical_load": l.Critical} {
		if text == nil {
			continue
		}
		load, err := ParseLoad(*text)
		if err != nil {
			return bad("%s: %w", name, err)
		}
		*text = load.String()
	}
	if l.Max == nil || l.Critical == nil { // the other one is the engine's to know
		return nil
	}
	if err := CheckLoads(*l.Max, *l.Critical); err != nil {
		return bad("%w", err)
	}
	return nil
}

// LoadState is what copying gives way to, and how that stands.
type LoadState struct {
	Max      string    `json:"max_load,omitempty"`
	Critical string    `json:"critical_load,omitempty"`
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since"`
	// Measured is in seconds, by name of the load; what is not there is not known.
	Measured map[string]float64 `json:"measured"`
	Over     string             `json:"over,omitempty"` // what is above Max; empty: nothing is
}
