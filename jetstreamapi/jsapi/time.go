package jsapi

import (
	"math"
	"time"
)

// The years of which every moment can be given in nanoseconds; the zero time and "for ever" are beyond.
const firstNanoYear, lastNanoYear = 1678, 2261

// UnixNano is t's UnixNano, and the nearest there is for times so far off that they have none. Clients name such times.
func UnixNano(t time.Time) int64 {
	switch y := t.UTC().Year(); {
	case y < firstNanoYear:
		return math.MinInt64
	case y > lastNanoYear:
		return math.MaxInt64
	}
	return t.UnixNano()
}
