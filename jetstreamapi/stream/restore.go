package stream

import (
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// Expired reports whether a message that was stored at a time (Unix nanoseconds) has outlived the TTL in its header
// block: a restore leaves it out. The error is a TTL that is none.
func Expired(header []byte, at, now int64) (bool, error) {
	ttl, err := parseTTL(jsapi.HeaderValue(header, jsapi.HeaderTTL))
	if err != nil || ttl <= 0 {
		return false, err
	}
	return time.Unix(0, at).Add(time.Duration(ttl)*time.Second).UnixNano() < now, nil
}
