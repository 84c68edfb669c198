package config

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"
)

// Whatever stands in our blocks: no panic, and every complaint names its place.
func FuzzOwnBlocks(f *testing.F) {
	for _, s := range []string{
		`ehdb { shards: 2, map: [{subject: "a.*", shards: "0-1", tokens: "2"}, {subject: x, shard: 1}] }`,
		`ehdb { subjects: [a, "b.>"], queue_bytes: 2MiB, metrics_port: -1, log_format: json }`,
		`ehdb: [1, 2], bus: { mode: { a: b } }`,
		`ehdb { shards: 2, map: { subject: "a.>", shards: "1-0" } }`,
		`bus { mode: ehdb }`,
		`bus { upstream: ["nats://a:1", "tls://b"], monitor: "http://x", connect_timeout: "1s", tls { insecure: true } }`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "$") || strings.Contains(text, "include") {
			t.Skip("would read the environment or files")
		}
		m, err := conf.ParseWithChecks(text)
		if err != nil {
			t.Skip("no configuration file")
		}
		d := &decoder{}
		e := d.ehdb(m["ehdb"])
		mode := d.bus(m["bus"]).Mode
		for _, err := range d.errs {
			if !strings.HasPrefix(err.Error(), ":") {
				t.Errorf("a complaint without a place: %v", err)
			}
		}
		if len(d.errs) == 0 && (e.Shards < 0 || e.Shards > maxShards || mode != "" && mode != "ehdb" && mode != "nats" && mode != "shadow") {
			t.Errorf("accepted: %+v %q", e, mode)
		}
	})
}
