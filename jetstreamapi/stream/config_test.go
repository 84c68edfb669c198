package stream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
)

func asJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func TestCompleteAsNATS(t *testing.T) {
	dup := func(d time.Duration) func(*server.StreamConfig) {
		return func(c *server.StreamConfig) { c.Duplicates = d }
	}
	subjects := func(list ...string) func(*server.StreamConfig) {
		return func(c *server.StreamConfig) { c.Subjects = list }
	}
	changes := map[string]func(*server.StreamConfig){
		"nothing":           func(*server.StreamConfig) {},
		"long name":         func(c *server.StreamConfig) { c.Name = strings.Repeat("x", 256) },
		"long description":  func(c *server.StreamConfig) { c.Description = strings.Repeat("x", 4097) },
		"metadata":          func(c *server.StreamConfig) { c.Metadata = map[string]string{"a": "b"} },
		"much metadata":     func(c *server.StreamConfig) { c.Metadata = map[string]string{"a": strings.Repeat("x", 128<<10)} },
		"memory":            func(c *server.StreamConfig) { c.Storage = server.MemoryStorage },
		"s2":                func(c *server.StreamConfig) { c.Compression = server.S2Compression },
		"six replicas":      func(c *server.StreamConfig) { c.Replicas = 6 },
		"minus one replica": func(c *server.StreamConfig) { c.Replicas = -1 },
		"low limits": func(c *server.StreamConfig) {
			c.MaxMsgs, c.MaxBytes, c.MaxMsgsPer = -5, -6, -7
			c.MaxMsgSize, c.MaxConsumers = -8, -9
		},
		"limits": func(c *server.StreamConfig) {
			c.MaxMsgs, c.MaxBytes, c.MaxMsgsPer = 5, 6, 7
			c.MaxMsgSize, c.MaxConsumers = 8, 9
		},
		"negative age":         func(c *server.StreamConfig) { c.MaxAge = -1 },
		"short age":            func(c *server.StreamConfig) { c.MaxAge = time.Millisecond },
		"age":                  func(c *server.StreamConfig) { c.MaxAge = time.Second },
		"age below window":     func(c *server.StreamConfig) { c.MaxAge, c.Duplicates = time.Second, 2*time.Second },
		"negative window":      dup(-1),
		"short window":         dup(time.Millisecond),
		"window":               dup(time.Minute),
		"no purge with rollup": func(c *server.StreamConfig) { c.DenyPurge, c.AllowRollup = true, true },
		"new per, not new":     func(c *server.StreamConfig) { c.DiscardNewPer = true },
		"new per, no limit":    func(c *server.StreamConfig) { c.DiscardNewPer, c.Discard = true, server.DiscardNew },
		"new per":              func(c *server.StreamConfig) { c.DiscardNewPer, c.Discard, c.MaxMsgsPer = true, server.DiscardNew, 1 },
		"marker":               func(c *server.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Minute },
		"short marker":         func(c *server.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Millisecond },
		"negative marker":      func(c *server.StreamConfig) { c.SubjectDeleteMarkerTTL = -time.Second },
		"async":                func(c *server.StreamConfig) { c.PersistMode = server.AsyncPersistMode },
		"async in memory":      func(c *server.StreamConfig) { c.PersistMode, c.Storage = server.AsyncPersistMode, server.MemoryStorage },
		"first seq":            func(c *server.StreamConfig) { c.FirstSeq = 100 },
		"mirror, subjects":     func(c *server.StreamConfig) { c.Mirror = &server.StreamSource{Name: "M"}; c.Subjects = []string{"a"} },
		"mirror, first seq":    func(c *server.StreamConfig) { c.Mirror = &server.StreamSource{Name: "M"}; c.FirstSeq = 2 },
		"mirror, bad name":     func(c *server.StreamConfig) { c.Mirror = &server.StreamSource{Name: "M.x"} },
		"source, bad name":     func(c *server.StreamConfig) { c.Sources = []*server.StreamSource{{Name: "M.x"}} },
		"no subjects":          subjects(),
		"empty token":          subjects("a..b"),
		"space":                subjects("a b"),
		"same subject":         subjects("a", "a"),
		"overlap":              subjects("a.b", "a.*"),
		"everything":           subjects(">"),
		"everything, no ack":   func(c *server.StreamConfig) { c.Subjects, c.NoAck = []string{">"}, true },
		"API":                  subjects("$JS.API.x"),
		"wide":                 subjects("*.API.x"),
		"events":               subjects("$JS.EVENT.ADVISORY.>"),
		"system":               subjects("$SYS.x"),
		"system accounts":      subjects("$SYS.ACCOUNT.>"),
		"transform": func(c *server.StreamConfig) {
			c.SubjectTransform = &server.SubjectTransformConfig{Source: "a.*", Destination: "b.$1"}
		},
		"transform, source": func(c *server.StreamConfig) {
			c.SubjectTransform = &server.SubjectTransformConfig{Source: "a..x", Destination: "b"}
		},
		"transform, dest": func(c *server.StreamConfig) {
			c.SubjectTransform = &server.SubjectTransformConfig{Source: "a.*", Destination: "b.{{wildcard(2)}}"}
		},
		"transform, bad func": func(c *server.StreamConfig) {
			c.SubjectTransform = &server.SubjectTransformConfig{Source: "a.*", Destination: "b.{{nope(2)}}"}
		},
		"republish":             func(c *server.StreamConfig) { c.RePublish = &server.RePublish{Destination: "copy.>"} },
		"republish cycle":       func(c *server.StreamConfig) { c.RePublish = &server.RePublish{Source: ">", Destination: "S"} },
		"republish, bad":        func(c *server.StreamConfig) { c.RePublish = &server.RePublish{Source: "a.*", Destination: "copy.$2"} },
		"placement":             func(c *server.StreamConfig) { c.Placement = &server.Placement{} },
		"preferred":             func(c *server.StreamConfig) { c.Placement = &server.Placement{Preferred: "x"} },
		"counter, new":          func(c *server.StreamConfig) { c.AllowMsgCounter, c.Discard = true, server.DiscardNew },
		"counter, ttl":          func(c *server.StreamConfig) { c.AllowMsgCounter, c.AllowMsgTTL = true, true },
		"counter, interest":     func(c *server.StreamConfig) { c.AllowMsgCounter, c.Retention = true, server.InterestPolicy },
		"schedules, new":        func(c *server.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, server.DiscardNew },
		"two faults":            func(c *server.StreamConfig) { c.MaxAge, c.Subjects = -1, []string{"a..b"} },
		"consumer limits":       func(c *server.StreamConfig) { c.ConsumerLimits.MaxAckPending = 5 },
		"direct":                func(c *server.StreamConfig) { c.AllowDirect = true },
		"deny delete and purge": func(c *server.StreamConfig) { c.DenyDelete, c.DenyPurge = true, true },
	}
	theirs, ours := newTheirs(t), newOurs(t)
	n := 0
	for name, change := range changes {
		n++
		t.Run(name, func(t *testing.T) {
			cfg := server.StreamConfig{Name: fmt.Sprintf("S%d", n), Subjects: []string{fmt.Sprintf("s%d.>", n)}, Storage: server.FileStorage, Replicas: 1}
			change(&cfg)
			copied := cfg
			want := errorLine(theirs.create(t, cfg))
			got := errorLine(ours.create(t, copied))
			if want != got {
				t.Fatalf("nats-server: %s\nours:        %s", want, got)
			}
			if want != "ok" {
				return
			}
			if want, got := asJSON(theirs.config(t)), asJSON(ours.config(t)); want != got {
				t.Errorf("nats-server: %s\nours:        %s", want, got)
			}
			theirs.api(t, "STREAM.DELETE."+theirs.name, nil, nil)
			ours.stream.Stop()
		})
	}
}

func TestCompletePedantic(t *testing.T) {
	for want, cfg := range map[string]server.StreamConfig{
		"pedantic mode: max_msgs must be set to -1":                        {MaxMsgs: -5},
		"pedantic mode: duplicate window cannot be bigger than max age":    {MaxAge: time.Second},
		"pedantic mode: republish source can not be empty":                 {RePublish: &server.RePublish{Destination: "x.>"}},
		"subject delete marker cannot be set if roll-ups are disabled":     {SubjectDeleteMarkerTTL: time.Second, AllowMsgTTL: true},
		"subject delete marker cannot be set if message TTLs are disabled": {SubjectDeleteMarkerTTL: time.Second},
	} {
		cfg.Name = "S"
		if err := stream.Complete(&cfg, true, stream.Limits{}); err == nil || err.Description != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCompleteLimits(t *testing.T) {
	for code, c := range map[uint16]struct {
		cfg    server.StreamConfig
		limits stream.Limits
	}{
		10113: {limits: stream.Limits{MaxBytesRequired: true}},
		10122: {cfg: server.StreamConfig{MaxBytes: 2}, limits: stream.Limits{MaxStreamBytes: 1}},
		10052: {cfg: server.StreamConfig{Duplicates: time.Hour}, limits: stream.Limits{Duplicates: time.Minute}},
	} {
		c.cfg.Name = "S"
		if err := stream.Complete(&c.cfg, false, c.limits); err == nil || err.ErrCode != code {
			t.Errorf("got %v, want %d", err, code)
		}
	}
}

func TestCheckUpdateAsNATS(t *testing.T) {
	type change = func(*server.StreamConfig)
	changes := map[string][2]change{
		"storage":       {nil, func(c *server.StreamConfig) { c.Storage = server.MemoryStorage }},
		"to work queue": {nil, func(c *server.StreamConfig) { c.Retention = server.WorkQueuePolicy }},
		"to interest":   {nil, func(c *server.StreamConfig) { c.Retention = server.InterestPolicy }},
		"seal":          {nil, func(c *server.StreamConfig) { c.Sealed = true; c.MaxAge = time.Hour }},
		"allow delete":  {func(c *server.StreamConfig) { c.DenyDelete = true }, func(c *server.StreamConfig) { c.DenyDelete = false }},
		"allow purge":   {func(c *server.StreamConfig) { c.DenyPurge = true }, func(c *server.StreamConfig) { c.DenyPurge = false }},
		"no more TTL":   {func(c *server.StreamConfig) { c.AllowMsgTTL = true }, func(c *server.StreamConfig) { c.AllowMsgTTL = false }},
		"TTL":           {nil, func(c *server.StreamConfig) { c.AllowMsgTTL = true }},
		"persist mode":  {nil, func(c *server.StreamConfig) { c.PersistMode = server.AsyncPersistMode }},
		"new per":       {nil, func(c *server.StreamConfig) { c.DiscardNewPer = true }},
		"replicas":      {nil, func(c *server.StreamConfig) { c.Replicas = 3 }},
		"subjects":      {nil, func(c *server.StreamConfig) { c.Subjects = []string{"other.>"} }},
		"limits":        {nil, func(c *server.StreamConfig) { c.MaxMsgs, c.MaxAge, c.Duplicates = 10, time.Hour, time.Minute }},
		"description":   {nil, func(c *server.StreamConfig) { c.Description = "d" }},
	}
	theirs, ours := newTheirs(t), newOurs(t)
	n := 0
	for name, steps := range changes {
		n++
		t.Run(name, func(t *testing.T) {
			cfg := server.StreamConfig{Name: fmt.Sprintf("S%d", n), Subjects: []string{fmt.Sprintf("s%d.>", n)}, Storage: server.FileStorage, Replicas: 1}
			if steps[0] != nil {
				steps[0](&cfg)
			}
			if a, b := theirs.create(t, cfg), ours.create(t, cfg); a != nil || b != nil {
				t.Fatal(a, b)
			}
			next := cfg
			steps[1](&next)
			want, got := errorLine(theirs.update(t, next)), errorLine(ours.update(t, next))
			if want != got {
				t.Fatalf("nats-server: %s\nours:        %s", want, got)
			}
			if want, got := asJSON(theirs.config(t)), asJSON(ours.config(t)); want != got {
				t.Errorf("nats-server: %s\nours:        %s", want, got)
			}
			theirs.api(t, "STREAM.DELETE."+theirs.name, nil, nil)
			ours.stream.Stop()
		})
	}
}
