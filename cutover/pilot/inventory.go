package pilot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/origin"
)

// Inventory implements face.Engine.
func (p *Pilot) Inventory(ctx context.Context) (*face.Inventory, error) {
	inv := &face.Inventory{
		At: time.Now(), Streams: []face.PlannedStream{}, Clients: []face.ClientKind{}, Queues: []face.QueueGroup{},
		Scalers: []face.Scrape{}, Controllers: []face.Connection{}, Notes: []string{},
	}
	h := sha256.New()
	for _, account := range slices.Sorted(maps.Keys(p.o.Conns)) {
		c := p.o.Conns[account]
		list, err := c.Streams(ctx)
		var missing *origin.MissingError
		if err != nil && !errors.As(err, &missing) {
			return nil, err
		}
		if missing != nil {
			inv.Notes = append(inv.Notes, account+": "+missing.Error())
		}
		for _, info := range list {
			if own(info.Config.Name) {
				continue
			}
			doc, err := json.Marshal(info.Config)
			if err != nil {
				return nil, err
			}
			_, _ = h.Write(append(doc, account...)) // never fails
			inv.Streams = append(inv.Streams, p.listed(ctx, c, info))
		}
	}
	for i := range inv.Streams {
		s := &inv.Streams[i]
		inv.Total.Streams++
		inv.Total.Messages += s.Messages
		inv.Total.Bytes += s.Bytes
		inv.Total.Seconds = max(inv.Total.Seconds, s.Seconds)
	}
	p.clientKinds(ctx, inv)
	p.references(inv)
	const enough = 8
	inv.Digest = hex.EncodeToString(h.Sum(nil)[:enough])
	return inv, nil
}

// cautiousRate is what is copied a second at least where nothing else is the bound, in bytes.
const cautiousRate = 20 << 20

// listed is a stream of the servers as it would be moved.
func (p *Pilot) listed(ctx context.Context, c *origin.Conn, info *server.StreamInfo) face.PlannedStream {
	cfg, account := &info.Config, c.Account()
	s := face.PlannedStream{
		Scope: cutover.Scope{Account: account, Stream: cfg.Name}, Messages: info.State.Msgs, Bytes: info.State.Bytes,
		Consumers: info.State.Consumers, Kind: "stream", Features: []string{}, Refusals: flip.Unsupported(cfg),
		Shards: []uint32{}, Groups: []string{}, Managed: managed(cfg.Metadata),
	}
	switch {
	case strings.HasPrefix(cfg.Name, "KV_"):
		s.Kind = "kv"
	case strings.HasPrefix(cfg.Name, "OBJ_"):
		s.Kind = "object"
	}
	for name, used := range map[string]bool{
		"work queue": cfg.Retention == server.WorkQueuePolicy, "interest": cfg.Retention == server.InterestPolicy,
		"ttl": cfg.AllowMsgTTL, "rollup": cfg.AllowRollup, "deduplication": cfg.Duplicates > 0,
		"atomic batches": cfg.AllowAtomicPublish, "direct get": cfg.AllowDirect,
	} {
		if used {
			s.Features = append(s.Features, name)
		}
	}
	slices.Sort(s.Features)
	rate := uint64(cautiousRate)
	if p.o.CopyRate > 0 {
		rate = min(rate, uint64(p.o.CopyRate))
	}
	s.Seconds = float64(info.State.Bytes) / float64(rate)
	if p.o.Shards != nil && cfg.Storage != server.MemoryStorage {
		s.Shards = append(s.Shards, p.o.Shards(account, cfg.Name, cfg.Subjects)...)
	}
	if s.Consumers > 0 {
		consumers, err := c.Stream(cfg.Name).Consumers(ctx)
		if err != nil {
			s.Groups = append(s.Groups, "not known: "+err.Error())
		}
		for _, i := range consumers {
			if i.Config.DeliverGroup != "" {
				s.Groups = append(s.Groups, i.Name+"/"+i.Config.DeliverGroup)
			}
		}
	}
	return s
}

// keepers are in the names of metadata by which programs know what is theirs.
var keepers = []string{"managed-by", "managed_by", "kubernetes", "nats.io/", "nack", "terraform", "argocd"}

// managed are the entries of a stream's metadata that say that a program keeps its configuration.
func managed(metadata map[string]string) []string {
	out := []string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		k := strings.ToLower(key)
		theirs := strings.HasPrefix(k, "_nats.") // the servers' own
		says := func(part string) bool { return strings.Contains(k, part) }
		if !theirs && slices.ContainsFunc(keepers, says) {
			out = append(out, key+"="+metadata[key])
		}
	}
	return out
}

// nackName is what NACK's controller calls its connections, in both of its modes.
const nackName = "jetstream-controller"

// references are those who refer to streams besides clients that publish and consume.
func (p *Pilot) references(inv *face.Inventory) {
	if p.o.Queues != nil {
		for _, q := range p.o.Queues() {
			if _, ours := p.o.Conns[q.Account]; ours {
				inv.Queues = append(inv.Queues, q)
			}
		}
	} else {
		inv.Notes = append(inv.Notes, "queue groups are not known")
	}
	if p.o.Scrapes != nil {
		for _, s := range p.o.Scrapes() {
			if isScaler(s.Agent) {
				inv.Scalers = append(inv.Scalers, s)
			}
		}
	}
	p.around.mu.Lock()
	defer p.around.mu.Unlock()
	for i := range p.around.list { // as clientKinds has just seen them
		if c := &p.around.list[i]; strings.HasPrefix(c.Name, nackName) {
			inv.Controllers = append(inv.Controllers, c.Connection)
		}
	}
	if n := len(inv.Controllers); n > 0 {
		inv.Notes = append(inv.Notes, fmt.Sprintf("%d connections of NACK (%s), which sets streams and consumers to "+
			"what its resources say: let it be quiet while streams move (--read-only, or preventUpdate)", n, nackName))
	}
}
