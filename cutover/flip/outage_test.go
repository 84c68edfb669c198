package flip_test

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestServersGoneWhileServedHere: the server is killed while the stream is served from here, again and again. Clients
// publish and take all the while; behind it the servers get what they lack, and a rollback loses nothing.
func TestServersGoneWhileServedHere(t *testing.T) {
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"limits": jetstream.LimitsPolicy, "workqueue": jetstream.WorkQueuePolicy,
	} {
		if retention != jetstream.LimitsPolicy && os.Getenv("EHDB_SLOW") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			x := newCrossing(t, retention)
			count := func() (published, confirmed int) {
				x.mu.Lock()
				defer x.mu.Unlock()
				return len(x.acked), len(x.confirmed)
			}
			x.bring(flip.PhaseEHDB)
			for range 2 {
				x.nats.kill()
				gone := time.Now()
				published, confirmed := count()
				until(t, "clients go on without the servers", func() bool {
					p, c := count()
					return p > published+50 && c > confirmed+50
				})
				if took := time.Since(gone); took > 8*time.Second {
					t.Errorf("clients were back after %v", took)
				}
				if got := x.phase(); got != flip.PhaseEHDB {
					t.Fatalf("phase %s", got)
				}
				x.nats.start()
				published, _ = count()
				until(t, "clients go on by way of the servers", func() bool { p, _ := count(); return p > published+50 })
			}
			x.account()
		})
	}
}
