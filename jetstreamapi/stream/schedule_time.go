package stream

import (
	"math"
	"strings"
	"time"
	_ "time/tzdata" // the zones that schedules name, where the system has none

	"github.com/robfig/cron/v3"
)

// minEvery is the shortest interval of an "@every" schedule.
const minEvery = time.Second

// starBits is what cron's parser adds to the bits of a field that was given as a star.
const starBits = 1 << 63

// cronNames are the schedules that have a name.
var cronNames = map[string]string{
	"@yearly":   "0 0 0 1 1 *",
	"@annually": "0 0 0 1 1 *",
	"@monthly":  "0 0 0 1 * *",
	"@weekly":   "0 0 0 * * 0",
	"@daily":    "0 0 0 * * *",
	"@midnight": "0 0 0 * * *",
	"@hourly":   "0 0 * * * *",
}

// fireTime is when a schedule fires.
type fireTime struct {
	at      time.Time
	repeats bool
}

// nextFire returns when a schedule fires that was set, or fired last, at from; false if pattern is no schedule. zone is
// nil for UTC; only cron patterns may have one. What a repeating schedule missed before now is left out.
func nextFire(pattern string, zone *time.Location, from, now time.Time) (fireTime, bool) {
	at, isAt := strings.CutPrefix(pattern, "@at ")
	every, isEvery := strings.CutPrefix(pattern, "@every ")
	switch {
	case (isAt || isEvery) && zone != nil:
		return fireTime{}, false
	case isAt:
		t, err := time.Parse(time.RFC3339, at)
		return fireTime{at: t}, err == nil
	case isEvery:
		interval, err := time.ParseDuration(every)
		if err != nil || interval < minEvery {
			return fireTime{}, false
		}
		next := from.UTC().Round(time.Second).Add(interval)
		if next.Before(now) {
			next = now.UTC().Round(time.Second).Add(interval)
		}
		return fireTime{at: next, repeats: true}, true
	}
	return nextCron(pattern, zone, from, now)
}

// nextCron is nextFire for the six fields of cron (seconds first) and their names.
func nextCron(pattern string, zone *time.Location, from, now time.Time) (fireTime, bool) {
	if named, ok := cronNames[pattern]; ok {
		pattern = named
	}
	spec, ok := parseCron(pattern)
	if !ok {
		return fireTime{}, false
	}
	if zone == nil {
		zone = time.UTC
	}
	spec.Location = zone
	next := spec.Next(from.In(zone))
	if !next.IsZero() && next.Before(now) {
		next = spec.Next(now.Round(time.Second).In(zone))
	}
	return fireTime{at: next, repeats: true}, !next.IsZero()
}

// parseCron parses six fields. A field without any value, such as ",", can never match: it is refused here, for the
// search for the next time would go through years of seconds.
func parseCron(pattern string) (*cron.SpecSchedule, bool) {
	// The parser takes a time zone in front of the fields, which is no part of the format.
	if strings.HasPrefix(pattern, "TZ=") || strings.HasPrefix(pattern, "CRON_TZ=") {
		return nil, false
	}
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(pattern)
	if err != nil {
		return nil, false
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, false
	}
	for _, bits := range []uint64{spec.Second, spec.Minute, spec.Hour, spec.Month} {
		if bits&^starBits == 0 {
			return nil, false
		}
	}
	return spec, true
}

// unixNano is t.UnixNano, but times too far away for that are the first or the last there is.
func unixNano(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// zones remembers the time zones that schedules named, since to load one takes reading a file.
type zones map[string]*time.Location

// maxZones bounds zones. There are about six hundred in the world.
const maxZones = 1024

// load returns the zone called name.
func (z *zones) load(name []byte) (*time.Location, error) {
	if zone, ok := (*z)[string(name)]; ok {
		return zone, nil
	}
	zone, err := time.LoadLocation(string(name))
	if err != nil {
		return nil, err
	}
	if *z == nil || len(*z) >= maxZones {
		*z = make(zones)
	}
	(*z)[string(name)] = zone
	return zone, nil
}
