package reverse

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Prune removes from the servers' stream the messages up to last that were removed here, but for those that it denies
// to remove. It returns how many it removed one by one.
func Prune(ctx context.Context, conn *nats.Conn, from cutover.Copy, to cutover.Reader, last uint64) (int, error) {
	e := newEraser(conn, from, to)
	ours, err := from.State(ctx, true)
	if err != nil {
		return 0, err
	}
	theirs, err := to.State(ctx, true)
	if err != nil {
		return 0, err
	}
	first := min(ours.FirstSeq, last+1)
	if theirs.FirstSeq < first && theirs.Msgs > 0 {
		body := fmt.Sprintf(`{"seq":%d}`, first)
		if err := denial(request(ctx, conn, "STREAM.PURGE."+e.name, body)); err != nil && !errors.Is(err, errDenied) {
			return 0, err
		}
	}
	gone := make(map[uint64]bool, len(theirs.Deleted))
	for _, seq := range theirs.Deleted {
		gone[seq] = true
	}
	n := 0
	for _, seq := range ours.Deleted {
		if gone[seq] || seq > last || seq < first || seq < theirs.FirstSeq || seq > theirs.LastSeq {
			continue
		}
		switch err := e.erase(ctx, seq); {
		case err == nil:
			n++
		case !errors.Is(err, errDenied):
			return n, err
		}
	}
	return n, nil
}
