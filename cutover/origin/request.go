package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// api begins the subjects of the JetStream API.
const api = "$JS.API."

var errTimeout = errors.New("no answer")

// Request asks the JetStream API, subject being without its prefix, and returns the answer as it came. An error in the
// answer is not one here.
func (c *Conn) Request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	link := c.linked()
	if !c.nc.IsConnected() {
		return nil, nats.ErrDisconnected
	}
	limited, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	defer context.AfterFunc(link, cancel)()
	m, err := c.nc.RequestWithContext(limited, api+subject, body)
	switch {
	case err == nil:
		return m.Data, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case link.Err() != nil:
		return nil, context.Cause(link)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w within %v", errTimeout, c.o.Timeout)
	}
	return nil, err
}

// ask is Request with the answer decoded into resp; an error in the answer, which head is part of, is one here:
// cutover.ErrNoStream or ErrNoRecord where it says that, else the servers' own with status and code.
func (c *Conn) ask(ctx context.Context, subject string, req, resp any, head *server.ApiResponse) error {
	var body []byte
	if req != nil {
		var err error
		if body, err = json.Marshal(req); err != nil {
			return err
		}
	}
	data, err := c.Request(ctx, subject, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, resp); err != nil {
		return fmt.Errorf("an answer that is none: %w", err)
	}
	return apiError(head.Error)
}

func apiError(e *server.ApiError) error {
	switch {
	case e == nil:
		return nil
	case e.ErrCode == uint16(server.JSStreamNotFoundErr):
		return fmt.Errorf("%w: %w", cutover.ErrNoStream, e)
	case e.ErrCode == uint16(server.JSNoMessageFoundErr):
		return fmt.Errorf("%w: %w", cutover.ErrNoRecord, e)
	}
	return e
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
