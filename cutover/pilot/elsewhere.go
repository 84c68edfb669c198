package pilot

import (
	"context"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
)

// elsewhere implements cutover.Elsewhere by the gateway's own connections.
type elsewhere struct{ p *Pilot }

// Elsewhere are the servers, for questions about all streams of an account.
func (p *Pilot) Elsewhere() cutover.Elsewhere { return elsewhere{p} }

func (e elsewhere) Here(account, stream string) bool {
	return e.p.Here(cutover.Scope{Account: account, Stream: stream})
}

func (e elsewhere) Names(ctx context.Context, account, subject string) ([]string, error) {
	c, err := e.conn(account)
	if err != nil {
		return nil, err
	}
	return c.Names(ctx, subject)
}

func (e elsewhere) Infos(ctx context.Context, account, subject string, offset, n int) (*cutover.Infos, error) {
	c, err := e.conn(account)
	if err != nil {
		return nil, err
	}
	return c.Infos(ctx, subject, offset, n)
}

func (e elsewhere) Usage(ctx context.Context, account string) (*server.JetStreamAccountStats, error) {
	c, err := e.conn(account)
	if err != nil {
		return nil, err
	}
	return c.Usage(ctx)
}

func (e elsewhere) conn(account string) (*origin.Conn, error) {
	if c := e.p.o.Conns[account]; c != nil {
		return c, nil
	}
	return nil, noLogin(account)
}

func noLogin(account string) error {
	return fmt.Errorf("the gateway has no login of its own in account %s: bus { accounts { %q { ... } } }",
		account, account)
}
