package jetstreamapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestRestartFiles: the data directory stops as after a failed sync and is opened again; what was acknowledged is there,
// and who follows a stream hears of what comes then, whichever role it has.
func TestRestartFiles(t *testing.T) {
	l := begin(t, vfs.NewMem())
	defer l.end(t)
	local := l.svc.Cutover()
	follow := map[cutover.Role]cutover.Copy{
		cutover.Authority: testStandby(t, local, plainConfig("HERE", nil)),
		cutover.Standby:   testStandby(t, local, plainConfig("THERE", nil)),
	}
	if err := follow[cutover.Authority].SetRole(t.Context(), cutover.Authority); err != nil {
		t.Fatal(err)
	}
	add := func(role cutover.Role, seq uint64) {
		t.Helper()
		if role == cutover.Authority {
			l.p.must(t, nil, "HERE.a", "m")
			return
		}
		applySome(t, follow[role], "THERE.a", seq)
	}
	for role := range follow {
		add(role, 1)
	}
	const times = 3
	for n := uint64(1); n <= times; n++ {
		reached := make(chan cutover.Role, len(follow))
		for role, c := range follow {
			go func() { // as who follows does
				for {
					seq, moved := c.Progress()
					if seq == n+1 {
						reached <- role
						return
					}
					select {
					case <-moved:
					case <-t.Context().Done():
						return
					}
				}
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := l.svc.RestartFiles(ctx, errors.New("a test")); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := l.svc.Counters().Reopens; got != n {
			t.Fatalf("opened again %d times, not %d", got, n)
		}
		for role, c := range follow {
			if seq, _ := c.Progress(); seq != n || c.Role() != role {
				t.Fatalf("role %d at sequence %d, was %d at %d", c.Role(), seq, role, n)
			}
			add(role, n+1)
		}
		for range follow {
			select {
			case <-reached:
			case <-time.After(10 * time.Second):
				t.Fatal("a follower does not hear of a message")
			}
		}
	}
}
