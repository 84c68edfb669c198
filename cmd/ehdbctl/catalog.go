package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage/repair"
)

// catalogRecord is what the gateway's catalog says of a stream or consumer, or of several.
type catalogRecord struct {
	Version   int                  `json:"v"`
	Account   string               `json:"account"`
	Stream    string               `json:"stream"`
	Removed   bool                 `json:"removed,omitempty"`
	LogID     uint64               `json:"log,omitempty"`
	Shards    []uint64             `json:"shards,omitempty"`
	Created   time.Time            `json:"created,omitzero"`
	Config    *server.StreamConfig `json:"config,omitempty"`
	Batch     []catalogRecord      `json:"batch,omitempty"`
	Streams   []catalogRecord      `json:"streams,omitempty"`   // of a checkpoint
	Consumers []catalogRecord      `json:"consumers,omitempty"` // of a checkpoint
}

// each calls fn for the record and those in it.
func (r *catalogRecord) each(fn func(*catalogRecord)) {
	fn(r)
	for _, list := range [][]catalogRecord{r.Batch, r.Streams, r.Consumers} {
		for i := range list {
			list[i].each(fn)
		}
	}
}

// missingStreams returns entries for the logs of streams that the catalog does not know though they hold messages: what
// it said of them is lost. Their configuration is lost with it: they have no limits, so that nothing is removed, and no
// subjects, so that nothing is added before somebody has looked.
func missingStreams(entries [][]byte, logs []repair.LogInfo) (out []repair.CatalogEntry) {
	known, removed := map[uint64]bool{}, map[string]bool{}
	for _, e := range entries {
		var r catalogRecord
		if json.Unmarshal(e, &r) != nil {
			continue // the gateway will say so
		}
		r.each(func(r *catalogRecord) {
			known[r.LogID] = true
			removed[r.Account+"/"+r.Stream] = r.Removed
		})
	}
	for _, l := range logs {
		if known[l.ID] || removed[l.Name] {
			continue // or it was deleted, and the log was about to go
		}
		account, name, ok := strings.Cut(l.Name, "/")
		if !ok {
			account, name = "$G", l.Name
		}
		if _, taken := removed[account+"/"+name]; taken {
			name = fmt.Sprintf("%s-recovered-%d", name, l.ID) // a stream of that name was made anew
		}
		entry, err := json.Marshal(catalogRecord{
			Version: 1, Account: account, Stream: name, LogID: l.ID, Shards: l.Shards,
			Created: time.Unix(0, l.LastTime).UTC(),
			Config: &server.StreamConfig{
				Name: name, Storage: server.FileStorage, Replicas: 1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1,
				MaxMsgSize: -1, MaxConsumers: -1, Duplicates: 2 * time.Minute,
				Description: "recovered by ehdbctl storage repair; its configuration is lost",
			},
		})
		if err == nil {
			out = append(out, repair.CatalogEntry{Entry: entry, What: fmt.Sprintf(
				"the configuration of stream %s of account %s (log %d) is lost: it is there with its messages, "+
					"without subjects and limits, until it is given some (nats stream edit %s)",
				name, account, l.ID, name)})
		}
	}
	return out
}
