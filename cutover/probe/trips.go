package probe

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Trips are round trips to the servers, directly and through the gateway.
type Trips struct {
	Direct, Through Ring
	At              time.Time
}

// RoundTrips times n round trips each way, in turns, so that what disturbs one disturbs the other. A PING passes the
// gateway, so both are answered by a server.
func RoundTrips(ctx context.Context, direct, through *nats.Conn, n int, pause time.Duration) (*Trips, error) {
	out := &Trips{}
	for range n {
		for _, way := range []struct {
			nc *nats.Conn
			to *Ring
		}{{direct, &out.Direct}, {through, &out.Through}} {
			bounded, cancel := context.WithTimeout(ctx, askTime)
			since := time.Now()
			err := way.nc.FlushWithContext(bounded)
			out.At = time.Now()
			cancel()
			if err != nil {
				return nil, err
			}
			way.to.Add(out.At.Sub(since), out.At)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return out, nil
}

// Overhead is by how much the way through the gateway is longer at some quantiles, not below 0.
func (t *Trips) Overhead(qs ...float64) []time.Duration {
	direct, out := t.Direct.Quantiles(qs...), t.Through.Quantiles(qs...)
	for i := range out {
		out[i] = max(out[i]-direct[i], 0)
	}
	return out
}
