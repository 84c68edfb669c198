package pilot

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// bypassTime bounds one look at the servers' connections.
const bypassTime = 2 * time.Second

// bypass counts the connections to the servers that do not come through this gateway. Without their monitoring pages
// nothing is known.
func (p *Pilot) bypass(ctx context.Context, c *collector, account string) {
	if len(p.o.Monitor) == 0 || p.o.Addrs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bypassTime)
	defer cancel()
	n, total := 0, 0
	var who []string
	var all []*server.ConnInfo
	own := p.o.Addrs() // clients come and go meanwhile
	for _, at := range p.o.Monitor {
		list, err := connections(ctx, at)
		if err != nil {
			p.o.Logger.Debug("connections of a server", slog.Any("error", err))
			return
		}
		all = append(all, list...)
	}
	maps.Copy(own, p.o.Addrs())
	for _, conn := range all {
		if conn.Account != "" && conn.Account != account || strings.HasPrefix(conn.Name, "ehdb-gateway ") {
			continue
		}
		total++
		if addr := net.JoinHostPort(conn.IP, strconv.Itoa(conn.Port)); !own[addr] {
			n++
			who = append(who, fmt.Sprintf("%s %s %s %q", addr, conn.Lang, conn.Version, conn.Name))
		}
	}
	const most = 10
	if len(who) > most {
		who = append(who[:most], "...")
	}
	c.facts[gate.BypassConnections] = gate.Fact{
		Value: float64(n), N: uint64(total), At: c.now, Source: "connz", Detail: strings.Join(who, "; "),
	}
}

// connections returns the client connections of a server.
func connections(ctx context.Context, at *url.URL) (list []*server.ConnInfo, err error) {
	const page = 1024
	for offset := 0; ; offset += page {
		u := at.JoinPath("connz")
		u.RawQuery = fmt.Sprintf("auth=1&limit=%d&offset=%d", page, offset)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		var z server.Connz
		err = json.NewDecoder(resp.Body).Decode(&z)
		_ = resp.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u, err)
		}
		list = append(list, z.Conns...)
		if len(z.Conns) < page {
			return list, nil
		}
	}
}
