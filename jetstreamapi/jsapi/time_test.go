package jsapi

import (
	"math"
	"testing"
	"time"
)

func TestUnixNano(t *testing.T) {
	for _, c := range []struct {
		at   string
		want int64
	}{
		{"0001-01-01T00:00:00Z", math.MinInt64},
		{"1677-12-31T23:59:59Z", math.MinInt64},
		{"1678-01-01T00:00:00Z", time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()},
		{"1970-01-01T00:00:00.000000001Z", 1},
		{"2261-12-31T23:59:59Z", time.Date(2261, 12, 31, 23, 59, 59, 0, time.UTC).UnixNano()},
		{"2262-01-01T00:00:00Z", math.MaxInt64},
		{"9999-12-31T23:59:59Z", math.MaxInt64},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := UnixNano(at); got != c.want {
			t.Errorf("%s: %d, want %d", c.at, got, c.want)
		}
	}
}
