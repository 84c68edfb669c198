package pilot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// bypassTime bounds one look at the servers' connections.
const bypassTime = 2 * time.Second

// aroundFresh is how long a look counts: each stream's gates and the page ask, and it is one answer.
const aroundFresh = 500 * time.Millisecond

// around is the last look at the servers' connections.
type around struct {
	mu   sync.Mutex // held while it is looked
	at   time.Time
	list []seenConn
	err  error
}

// seenConn is a connection to a server.
type seenConn struct {
	face.Connection
	account string // empty: not told
	own     bool   // through this gateway
}

var errNoMonitor = errors.New("bus.monitor names no page of the servers, so their connections are not known")

// connected returns all connections to the servers.
func (p *Pilot) connected(ctx context.Context) ([]seenConn, time.Time, error) {
	if len(p.o.Monitor) == 0 || p.o.Addrs == nil {
		return nil, time.Now(), errNoMonitor
	}
	a := &p.around
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) < aroundFresh {
		return a.list, a.at, a.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bypassTime)
	defer cancel()
	a.list, a.err = p.lookAround(ctx)
	a.at = time.Now()
	if a.err != nil {
		p.o.Logger.Debug("connections of a server", slog.Any("error", a.err))
	}
	return a.list, a.at, a.err
}

func (p *Pilot) lookAround(ctx context.Context) (out []seenConn, err error) {
	own := p.o.Addrs() // clients come and go meanwhile
	for _, at := range p.o.Monitor {
		list, err := connections(ctx, at)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			out = append(out, seenConn{
				Connection: face.Connection{
					Addr: net.JoinHostPort(c.IP, strconv.Itoa(c.Port)), Name: c.Name, User: c.AuthorizedUser,
					Lang: c.Lang, Version: c.Version, Kind: "client", Server: at.Host, Since: c.Start,
				},
				account: c.Account, own: strings.HasPrefix(c.Name, ownName),
			})
		}
		leafs, err := leafnodes(ctx, at)
		if err != nil {
			return nil, err
		}
		for _, l := range leafs {
			out = append(out, seenConn{
				Connection: face.Connection{
					Addr: net.JoinHostPort(l.IP, strconv.Itoa(l.Port)), Name: l.Name, Kind: "leafnode", Server: at.Host,
				},
				account: l.Account,
			})
		}
	}
	maps.Copy(own, p.o.Addrs())
	for i := range out {
		out[i].own = out[i].own || own[out[i].Addr]
	}
	return out, nil
}

// bypassed is who goes around the gateway in an account.
func (p *Pilot) bypassed(ctx context.Context, account string) face.BypassState {
	list, at, err := p.connected(ctx)
	if err != nil {
		return face.BypassState{Account: account, At: at, Around: []face.Connection{}, Unknown: err.Error()}
	}
	return bypassOf(account, at, list)
}

// clientKinds adds the clients of the servers by their library, and who goes around the gateway.
func (p *Pilot) clientKinds(ctx context.Context, inv *face.Inventory) {
	list, _, err := p.connected(ctx)
	if err != nil {
		inv.Notes = append(inv.Notes, "clients: "+err.Error())
		return
	}
	inv.Clients = kindsOf(list)
	around := 0
	for i := range list {
		if !list[i].own {
			around++
		}
	}
	if around > 0 {
		inv.Notes = append(inv.Notes,
			fmt.Sprintf("%d connections to the servers go around the gateway: ehdbctl bypass ls", around))
	}
}

// kindsOf counts clients by library and version; the gateway's own connections are none.
func kindsOf(list []seenConn) []face.ClientKind {
	type kind struct{ lang, version string }
	count := make(map[kind]int)
	for i := range list {
		if c := &list[i]; c.Kind == "client" && !strings.HasPrefix(c.Name, ownName) {
			count[kind{cmp.Or(c.Lang, "unknown"), c.Version}]++
		}
	}
	out := make([]face.ClientKind, 0, len(count))
	for k, n := range count {
		out = append(out, face.ClientKind{Lang: k.lang, Version: k.version, Count: n})
	}
	slices.SortFunc(out, func(a, b face.ClientKind) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Lang, b.Lang), cmp.Compare(a.Version, b.Version))
	})
	return out
}

// ownName begins the names of the gateway's own connections to the servers.
const ownName = "ehdb-gateway "

// lastAround is what the last look at the servers' connections has found; ok: it is known.
func (p *Pilot) lastAround(account string) (st face.BypassState, ok bool) {
	p.around.mu.Lock()
	defer p.around.mu.Unlock()
	if p.around.at.IsZero() || p.around.err != nil {
		return st, false
	}
	return bypassOf(account, p.around.at, p.around.list), true
}

// bypassOf is who of a list goes around the gateway in an account.
func bypassOf(account string, at time.Time, list []seenConn) face.BypassState {
	st := face.BypassState{Account: account, At: at, Around: []face.Connection{}}
	for i := range list {
		if c := &list[i]; c.account == "" || c.account == account {
			st.Total++
			if !c.own {
				st.Around = append(st.Around, c.Connection)
			}
		}
	}
	return st
}

// bypass counts the connections to the servers that do not come through this gateway. Without their monitoring pages
// nothing is known.
func (p *Pilot) bypass(ctx context.Context, c *collector, account string) {
	st := p.bypassed(ctx, account)
	if st.Unknown != "" {
		return
	}
	const most = 10
	var who []string
	for i := range st.Around[:min(len(st.Around), most)] {
		d := &st.Around[i]
		who = append(who, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %q", d.Kind, d.Addr, d.Lang, d.Version, d.Name)))
	}
	if len(st.Around) > most {
		who = append(who, "...")
	}
	c.facts[gate.BypassConnections] = gate.Fact{
		Value: float64(len(st.Around)), N: uint64(st.Total), At: st.At, Source: "connz", //nolint:gosec // a length
		Detail: strings.Join(who, "; "),
	}
}

// leafnodes returns the leaf nodes of a server: whatever they carry does not pass here.
func leafnodes(ctx context.Context, at *url.URL) ([]*server.LeafInfo, error) {
	var z server.Leafz
	err := page(ctx, at.JoinPath("leafz"), &z)
	return z.Leafs, err
}

// connections returns the client connections of a server.
func connections(ctx context.Context, at *url.URL) (list []*server.ConnInfo, err error) {
	const most = 1024
	for offset := 0; ; offset += most {
		u := at.JoinPath("connz")
		u.RawQuery = fmt.Sprintf("auth=1&limit=%d&offset=%d", most, offset)
		var z server.Connz
		if err := page(ctx, u, &z); err != nil {
			return nil, err
		}
		list = append(list, z.Conns...)
		if len(z.Conns) < most {
			return list, nil
		}
	}
}

// page reads a monitoring page of a server.
func page(ctx context.Context, u *url.URL, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", u, err)
	}
	return nil
}
