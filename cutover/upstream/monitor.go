package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Bounds of one question to a monitoring page.
const (
	monitorTimeout = 3 * time.Second
	maxPage        = 256 << 20
	pageAge        = time.Second // how long an answer is given again
	maxPages       = 64          // answers kept
)

// Monitor asks the monitoring pages of the servers upstream, and answers as the one server that clients see: with its
// name for every leader. What it cannot know completely it does not answer at all.
type Monitor struct {
	urls []*url.URL
	name string
	http *http.Client

	mu    sync.Mutex
	pages map[string]*page
}

// page is an answer, or one that is being waited for.
type page struct {
	done chan struct{}
	at   time.Time
	info *server.JSInfo
	err  error
}

// NewMonitor returns a Monitor of the pages below urls, one for each server. name is what the gateway calls itself.
func NewMonitor(urls []*url.URL, name string) *Monitor {
	return &Monitor{
		urls: urls, name: name, pages: map[string]*page{},
		http: &http.Client{Timeout: monitorTimeout, Transport: &http.Transport{IdleConnTimeout: time.Minute}},
	}
}

// Close ends idle connections.
func (m *Monitor) Close() { m.http.CloseIdleConnections() }

// ErrNoMonitor is what questions are answered with when no monitoring page is known.
var ErrNoMonitor = errors.New("the streams are on the NATS servers upstream, and no monitoring URL of theirs is " +
	"configured: set bus { monitor: [\"http://host:8222\"] }")

// Jsz returns what the servers say of their streams. An answer is at most a second old.
func (m *Monitor) Jsz(ctx context.Context, o *server.JSzOptions) (*server.JSInfo, error) {
	if len(m.urls) == 0 {
		return nil, ErrNoMonitor
	}
	query := jszQuery(o)
	m.mu.Lock()
	p := m.pages[query]
	if p != nil && p.fresh() {
		m.mu.Unlock()
		<-p.done
		return p.info, p.err
	}
	if len(m.pages) >= maxPages {
		clear(m.pages)
	}
	p = &page{done: make(chan struct{}), at: time.Now()}
	m.pages[query] = p
	m.mu.Unlock()
	p.info, p.err = m.ask(ctx, query)
	close(p.done)
	return p.info, p.err
}

// fresh tells answers that can be given again, and those that are on their way.
func (p *page) fresh() bool {
	select {
	case <-p.done:
		return p.err == nil && time.Since(p.at) < pageAge
	default:
		return true
	}
}

func jszQuery(o *server.JSzOptions) string {
	q := url.Values{}
	for name, on := range map[string]bool{
		"accounts": o.Accounts, "streams": o.Streams, "consumers": o.Consumer, "config": o.Config,
		"direct-consumers": o.DirectConsumer, "leader-only": o.LeaderOnly, "raft": o.RaftGroups,
		"stream-leader-only": o.StreamLeaderOnly,
	} {
		if on {
			q.Set(name, "true")
		}
	}
	if o.Account != "" {
		q.Set("acc", o.Account)
	}
	for name, n := range map[string]int{"offset": o.Offset, "limit": o.Limit} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	return q.Encode()
}

// node is what one server said.
type node struct {
	name string
	info server.JSInfo
	err  error
}

// ask asks every server and makes one answer of theirs.
func (m *Monitor) ask(ctx context.Context, query string) (*server.JSInfo, error) {
	nodes := make([]node, len(m.urls))
	var all sync.WaitGroup
	for i, at := range m.urls {
		all.Go(func() { nodes[i] = m.askOne(ctx, at, query) })
	}
	all.Wait()
	var errs []error
	nodes = slices.DeleteFunc(nodes, func(n node) bool {
		if n.err != nil {
			errs = append(errs, n.err)
		}
		return n.err != nil
	})
	if len(nodes) == 0 {
		return nil, errors.Join(errs...)
	}
	out, err := m.merge(nodes)
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	return out, nil
}

func (m *Monitor) askOne(ctx context.Context, at *url.URL, query string) (n node) {
	var varz struct {
		Name string `json:"server_name"`
	}
	if n.err = m.get(ctx, at, server.VarzPath, "", &varz); n.err == nil {
		n.name = varz.Name
		n.err = m.get(ctx, at, server.JszPath, query, &n.info)
	}
	return n
}

// get reads one page into v.
func (m *Monitor) get(ctx context.Context, at *url.URL, path, query string, v any) error {
	full := at.JoinPath(path)
	full.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, full.String(), nil)
	if err != nil {
		return err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return fmt.Errorf("monitoring page upstream: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK {
		const shown = 200
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body[:min(len(body), shown)])))
	}
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return fmt.Errorf("monitoring page upstream %s: %w", full.Redacted(), err)
	}
	return nil
}

// merge makes one answer: of each stream and consumer what its leader says. Followers' figures are behind.
func (m *Monitor) merge(nodes []node) (*server.JSInfo, error) {
	base := &nodes[0]
	for i := range nodes {
		if meta := nodes[i].info.Meta; meta != nil && meta.Leader == nodes[i].name {
			base = &nodes[i]
		}
	}
	out := base.info
	if out.Disabled {
		return &out, nil
	}
	clustered := out.Meta != nil
	out.Meta = &server.MetaClusterInfo{Leader: m.name, Size: 1}
	if clustered {
		out.Meta.Name = base.info.Meta.Name
	}
	out.AccountDetails = nil
	accounts := map[string]*accountMerge{}
	var order []string
	for i := range nodes {
		for _, d := range nodes[i].info.AccountDetails {
			a := accounts[d.Name]
			if a == nil {
				a = newAccountMerge(d)
				accounts[d.Name], order = a, append(order, d.Name)
			}
			a.add(&nodes[i], d)
		}
	}
	var missing []string
	for _, name := range order {
		missing = append(missing, accounts[name].missing(name)...)
		out.AccountDetails = append(out.AccountDetails, accounts[name].result(m.name))
	}
	if len(missing) > 0 {
		const shown = 5
		return nil, fmt.Errorf("bus.monitor names no server that leads %s: add the monitoring URLs of all servers",
			strings.Join(missing[:min(len(missing), shown)], ", "))
	}
	return &out, nil
}

// accountMerge gathers what servers say of one account.
type accountMerge struct {
	detail    server.AccountDetail
	streams   map[string]*server.StreamDetail            // from their leaders
	consumers map[string]map[string]*server.ConsumerInfo // from their leaders, by stream and name
	seen      map[string]map[string]bool                 // streams and their consumers, whoever speaks of them
	names     []string                                   // of streams, in the order seen
}

func newAccountMerge(d *server.AccountDetail) *accountMerge {
	a := &accountMerge{
		detail: *d, streams: map[string]*server.StreamDetail{},
		consumers: map[string]map[string]*server.ConsumerInfo{}, seen: map[string]map[string]bool{},
	}
	a.detail.Streams = nil
	return a
}

// leads reports whether n is the leader that c names; what is not replicated has none.
func leads(n *node, c *server.ClusterInfo) bool { return c == nil || c.Leader == n.name }

func (a *accountMerge) add(n *node, d *server.AccountDetail) {
	for i := range d.Streams {
		s := &d.Streams[i]
		if a.seen[s.Name] == nil {
			a.seen[s.Name] = map[string]bool{}
			a.consumers[s.Name] = map[string]*server.ConsumerInfo{}
			a.names = append(a.names, s.Name)
		}
		if leads(n, s.Cluster) {
			a.streams[s.Name] = s
		}
		for _, c := range s.Consumer {
			a.seen[s.Name][c.Name] = true
			if leads(n, c.Cluster) {
				a.consumers[s.Name][c.Name] = c
			}
		}
	}
}

// missing names what no leader was heard of.
func (a *accountMerge) missing(account string) []string {
	var out []string
	for _, name := range a.names {
		if a.streams[name] == nil {
			out = append(out, fmt.Sprintf("stream %q of account %q", name, account))
		}
		for c := range a.seen[name] {
			if a.consumers[name][c] == nil {
				out = append(out, fmt.Sprintf("consumer %q of stream %q of account %q", c, name, account))
			}
		}
	}
	slices.Sort(out)
	return out
}

// result is the account as led by one server.
func (a *accountMerge) result(leader string) *server.AccountDetail {
	out := a.detail
	for _, name := range a.names {
		if a.streams[name] == nil {
			continue
		}
		s := *a.streams[name]
		s.Cluster = &server.ClusterInfo{Leader: leader}
		s.Consumer = nil
		for _, c := range a.consumers[name] {
			c := *c
			c.Cluster = &server.ClusterInfo{Leader: leader}
			s.Consumer = append(s.Consumer, &c)
		}
		slices.SortFunc(s.Consumer, func(x, y *server.ConsumerInfo) int { return strings.Compare(x.Name, y.Name) })
		out.Streams = append(out.Streams, s)
	}
	return &out
}
