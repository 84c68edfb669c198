package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/noetl/ehdb-gateway/cutover"
)

// errDenied says that the servers' stream lets nobody delete a message, or only together with others that are to stay.
var errDenied = errors.New("the stream denies it")

// eraser deletes single messages of the servers' stream.
type eraser struct {
	conn *nats.Conn
	name string
	deny bool           // deny_delete: messages can only be purged, by their subject
	from cutover.Reader // what is to stay
	to   cutover.Reader
}

func newEraser(conn *nats.Conn, from cutover.Copy, to cutover.Reader) *eraser {
	cfg := from.Config()
	return &eraser{conn, cfg.Name, cfg.DenyDelete, from, to}
}

// erase deletes one message; one that is not there is no error. Of a stream with deny_delete, as every bucket is, those
// of its subject before it go with it, which must not be there in from either: errDenied if one is.
func (e *eraser) erase(ctx context.Context, seq uint64) error {
	if !e.deny {
		return removeMsg(ctx, e.conn, e.name, seq)
	}
	r, err := e.to.Get(ctx, seq)
	if errors.Is(err, cutover.ErrNoRecord) {
		return nil
	} else if err != nil {
		return err
	}
	subject := string(r.Subject)
	for at := uint64(1); at < seq; at++ {
		if at, err = e.next(ctx, at, subject); err != nil {
			return err
		}
		if at >= seq {
			break
		}
		if _, err := e.from.Get(ctx, at); err == nil {
			return fmt.Errorf("%w: sequence %d can't be deleted while %d, of its subject, stays", errDenied, seq, at)
		} else if !errors.Is(err, cutover.ErrNoRecord) {
			return err
		}
	}
	body, err := json.Marshal(server.JSApiStreamPurgeRequest{Subject: subject, Sequence: seq + 1})
	if err != nil {
		return err
	}
	return denial(request(ctx, e.conn, "STREAM.PURGE."+e.name, string(body)))
}

// next is the sequence of the first message of a subject from a sequence on, the largest number if there is none: what
// is erased at the same time may have taken it.
func (e *eraser) next(ctx context.Context, from uint64, subject string) (uint64, error) {
	body, err := json.Marshal(server.JSApiMsgGetRequest{Seq: from, NextFor: subject})
	if err != nil {
		return 0, err
	}
	var resp server.JSApiMsgGetResponse
	if err := ask(ctx, e.conn, "STREAM.MSG.GET."+e.name, body, &resp); noMessage(err) {
		return math.MaxUint64, nil
	} else if err != nil {
		return 0, err
	}
	return resp.Message.Sequence, nil
}

// denial is err, an errDenied if the servers' stream does not permit what was asked for.
func denial(err error) error {
	var api *apiError
	if errors.As(err, &api) && strings.Contains(api.text, "not permitted") {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	return err
}

// removeMsg deletes one message; one that is not there is no error.
func removeMsg(ctx context.Context, conn *nats.Conn, stream string, seq uint64) error {
	err := denial(request(ctx, conn, "STREAM.MSG.DELETE."+stream, fmt.Sprintf(`{"seq":%d,"no_erase":true}`, seq)))
	if !errors.Is(err, errDenied) && noMessage(err) {
		return nil
	}
	return err
}

// noMessage reports whether the servers say that they have no such message.
func noMessage(err error) bool {
	var api *apiError
	return errors.As(err, &api) &&
		(api.code == codeNoMessage || api.code == codeNoSequence || api.code == codeNotFound)
}

// atOnce is how many requests about single messages are on their way at a time.
const atOnce = 32

// all deletes messages, several at a time, but for those that the stream denies to delete. It returns how many it
// deleted, and the last denial.
func (e *eraser) all(ctx context.Context, seqs []uint64) (n int, denied, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, seq := range seqs {
		g.Go(func() error {
			err := e.erase(ctx, seq)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				n++
			case errors.Is(err, errDenied):
				denied, err = err, nil
			}
			return err
		})
	}
	err = g.Wait()
	return n, denied, err
}

// erase deletes fillers. Where the stream denies it they stay, and the log says so once.
func (c *Chain) erase(ctx context.Context, seqs []uint64) error {
	_, denied, err := newEraser(c.conn, c.from, c.to).all(ctx, seqs)
	if denied != nil {
		c.denied.Do(func() {
			c.log.Warn("Holes of {stream} are messages on the servers, which cannot be deleted there: {error}",
				slog.String("stream", c.name), slog.Any("error", denied))
		})
	}
	return err
}
