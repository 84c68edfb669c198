package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// What two servers may say differently, with the reason. Everything else must be equal.
var diffIgnored = map[string]string{
	"cluster":          "names of the server",
	"server":           "names of the server",
	"rtt":              "time",
	"ack_time":         "time",
	"id":               "random",
	"pinned_client_id": "random",
	"pinned_id":        "random",
	"api":              "the driver asks one of the two again while it waits for the other",
	"pause_remaining":  "time",
	"active":           "time",
	"_nats.ver":        "the version",
}

// diffTime matches times of today; those a script names are far from now and are compared.
var diffTime = regexp.MustCompile(`20(2[4-9]|3\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`)

// diffConsumerList matches the consumers that a change of a stream's limits violates: nats-server names them in any order.
var diffConsumerList = regexp.MustCompile(`violates consumers: [^"]*`)

// diffDefaultThreshold is the threshold of ephemeral consumers, which nats-server gives to one that is updated as durable,
// too, until it restarts.
const diffDefaultThreshold = `"inactive_threshold":5000000000,`

func diffScrub(s string) string {
	s = diffConsumerList.ReplaceAllString(s, "violates consumers")
	s = diffIdentity.ReplaceAllString(s, "$1 <identity>")
	s = diffTime.ReplaceAllString(s, "<time>")
	return ackTime.ReplaceAllString(s, "${1}<time>$2")
}

// diffJSON brings an answer into the form that is compared. What is no JSON stays as it is.
func diffJSON(b []byte) string {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return fmt.Sprintf("%q", b)
	}
	n, err := json.Marshal(diffNormal("", v))
	if err != nil {
		panic(err) // it was just unmarshalled
	}
	return strings.ReplaceAll(string(n), diffDefaultThreshold, "")
}

func diffNormal(key string, v any) any {
	if _, ok := diffIgnored[key]; ok {
		return "<" + key + ">"
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = diffNormal(k, x)
		}
		diffJustified(v)
		return v
	case []any:
		for i, x := range v {
			v[i] = diffNormal("", x)
		}
		return v
	case string:
		if key == "hdrs" {
			if b, err := base64.StdEncoding.DecodeString(v); err == nil {
				lines := strings.Split(strings.TrimRight(string(b), "\r\n"), "\r\n")
				slices.Sort(lines) // the client sends them in any order
				return diffScrub(strings.Join(lines, "\n"))
			}
		}
		return diffScrub(v)
	default:
		return v
	}
}

// diffJustified takes out of an object what differs on purpose; docs/parity.md has the line for each.
func diffJustified(v map[string]any) {
	if d, _ := v["deleted"].([]any); len(d) == 1 && d[0] == 0.0 {
		delete(v, "deleted") // "an empty stream's deleted_details": nats-server names a message 0
		delete(v, "num_deleted")
	}
	if v["messages"] == 0.0 && v["last_seq"] == 0.0 {
		delete(v, "first_seq") // "a purge of a stream that never had a message": 1 in nats-server when it starts again
	}
	if _, ok := v["lag"]; ok {
		delete(v, "error") // "a missing origin": told as soon as it is looked for, and nobody does at the same time
	}
	cfg, consumer := v["config"].(map[string]any)
	if _, ok := v["num_ack_pending"]; !ok || !consumer {
		return
	}
	if n, _ := cfg["max_deliver"].(float64); n > 0 {
		// "the ack floor and messages given up by max_deliver", "a NAK of the last delivery max_deliver permits"
		delete(v, "ack_floor")
		delete(v, "num_ack_pending")
		delete(v, "num_redelivered")
	}
}

// diffPurged takes out of a line what differs once a stream was purged: "a purge ahead of a consumer".
func diffPurged(s string) string { return diffPositions.ReplaceAllString(s, `"$1":0`) }

var diffPositions = regexp.MustCompile(`"(ack_floor|delivered|reset_seq)":(\{[^}]*\}|\d+)`)

// diffRestarted takes out of a line what differs after a restart: "last_active", which the gateway keeps, and what
// nats-server then takes from the stream's consumer_limits for consumers that were there before.
func diffRestarted(s string) string { return diffKept.ReplaceAllString(s, "") }

var diffKept = regexp.MustCompile(`"last_active":"[^"]*",?|"(inactive_threshold|max_ack_pending)":-?\d+,`)

// diffPending matches how many are pending after a delivery, and in an answer: where a consumer starts ahead of the last
// message, or is reset to there, nats-server counts the messages before that, too; and with replay policy original it is a
// matter of when the message comes.
var (
	diffPending = regexp.MustCompile(`( reply=\$JS\.ACK\.[^ ]*<time>)\.\d+`)
	diffAhead   = regexp.MustCompile(`opt_start_seq|\.RESET\..*"seq"|"replay_policy":"original"`)
	diffNumbers = regexp.MustCompile(`"num_pending":\d+,`)
)

// diffCounts are the fields that a delivery changes; diffDelivered matches a consumer that has delivered something.
var (
	diffCounts    = regexp.MustCompile(`"(num_ack_pending|num_pending|num_waiting)":\d+,|"(delivered|ack_floor)":(0|\{[^}]*\}),?`)
	diffDelivered = regexp.MustCompile(`"delivered":(0|\{"consumer_seq":[1-9])`)
)

// diffAllowed reports whether two answers to a line may differ.
func diffAllowed(line, want, got string) bool {
	// What an update sets free may be delivered before it is answered or after.
	if strings.HasPrefix(line, "api CONSUMER.") && strings.Contains(line, "CREATE") && diffCounts.MatchString(want) &&
		diffCounts.ReplaceAllString(want, "") == diffCounts.ReplaceAllString(got, "") {
		return diffDelivered.MatchString(want + got)
	}
	// What is copied may be there before the change is answered, or come after.
	if strings.HasPrefix(line, "api STREAM.") && diffCopied.MatchString(want) {
		return diffCopied.ReplaceAllString(want, "") == diffCopied.ReplaceAllString(got, "")
	}
	// "multi_last with up_to_seq beyond the last message": nats-server's file store has no results
	return strings.Contains(line, "up_to_seq") && strings.Contains(want, "No Results")
}

// diffPurges reports whether a line may purge; a schedule replaces the one before.
func diffPurges(line string) bool {
	return strings.Contains(line, ".PURGE.") || strings.Contains(line, ".MSG.DELETE.") || strings.Contains(line, "Nats-Schedule") || strings.Contains(line, "Nats-Rollup") || strings.HasPrefix(line, "kv purge")
}

// diffMsg is a message in the form that is compared; "" means that it is not.
func diffMsg(box string, m *nats.Msg) string {
	if box == diffAdvisories {
		return diffAdvisory(m)
	}
	if box == "ack" && strings.HasPrefix(m.Header.Get("Status"), "503") {
		return "" // "an AckSync that can mean nothing": answered here, nats-server is silent
	}
	for name := range m.Header {
		switch name {
		case "Nats-Pin-Id":
			m.Header.Set(name, "<pin>")
		case "Nats-Time-Stamp":
			m.Header.Set(name, "<time>")
		}
	}
	h, err := json.Marshal(m.Header) // sorts the names
	if err != nil {
		panic(err)
	}
	reply := ""
	if strings.HasPrefix(m.Reply, "$JS.ACK.") {
		reply = " reply=" + diffScrub(m.Reply)
	}
	subject := m.Subject
	if strings.HasPrefix(subject, "$JS.EVENT.METRIC.") {
		return subject + " " + diffJSON(m.Data)
	}
	if box == "get" || strings.HasPrefix(subject, "_INBOX.") {
		subject = ""
	}
	return fmt.Sprintf("%s%s %s %q", subject, reply, diffScrub(string(h)), m.Data)
}

// diffAdvisory is an advisory in the form that is compared. The audit of API calls is not: the driver repeats some.
func diffAdvisory(m *nats.Msg) string {
	if strings.Contains(m.Subject, ".ADVISORY.API") || strings.Contains(m.Subject, ".CONSUMER.") && strings.Contains(m.Subject, ".KV_") {
		return "" // the key-value client's consumers have random names
	}
	if diffCopyConsumer.MatchString(m.Subject) {
		return "" // "a mirror or source of a stream in the same account": it needs no consumer here
	}
	if strings.Contains(string(m.Data), "Unacknowledged message was deleted") {
		return "" // "outstanding messages that leave the stream": who is told, and when
	}
	return m.Subject + " " + diffJSON(m.Data)
}

// diffReads reports whether a line only reads: if its answers differ it may be that one of the servers is not yet done
// with what came before, so the line is played again.
func diffReads(line string) bool {
	for _, p := range []string{
		"check", "get ", "api INFO", "api STREAM.INFO", "api STREAM.NAMES", "api STREAM.LIST", "api STREAM.MSG.GET",
		"api CONSUMER.INFO", "api CONSUMER.NAMES", "api CONSUMER.LIST",
		"kv get", "kv keys", "kv history", "kv status",
	} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

// contextually far times, as a script may name them.
var diffFuture = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
