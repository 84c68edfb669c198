package e2e

import (
	"strings"
	"testing"
)

// diffCases are scripts that once showed a difference, as short as they could be made.
var diffCases = map[string]string{
	"a deliver group is not there while only others listen": `
sub push.A.D
api STREAM.CREATE.A {"name":"A"}
pub A 1
api CONSUMER.CREATE.A.D {"config":{"deliver_group":"q","deliver_subject":"push.A.D","durable_name":"D"},"stream_name":"A"}
pub A 2
api CONSUMER.INFO.A.D
`,
	"who makes or updates a paused consumer is told that it is paused": `
api STREAM.CREATE.A {"name":"A"}
api CONSUMER.CREATE.A.D {"config":{"durable_name":"D","pause_until":"2099-01-01T00:00:00Z"},"stream_name":"A"}
api CONSUMER.CREATE.A.D {"config":{"durable_name":"D"},"stream_name":"A"}
`,
	"a NAK of a message that a limit removed is nothing": `
api STREAM.CREATE.A {"name":"A","max_msgs":2,"subjects":["a.>"]}
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E"},"stream_name":"A"}
pub a.1 1
pull A E 0 {"batch":1}
pub a.1 2
pub a.1 3
ack A.E 0 -NAK
pull A E 0 {"batch":5,"no_wait":true}
`,
	"a multi_last that starts after its last message is an empty batch": `
api STREAM.CREATE.A {"allow_direct":true,"name":"A","subjects":["a.>"]}
pub a.1 1
pub a.2 2
get A {"multi_last":["a.1"],"seq":2}
get A {"multi_last":[">"],"seq":10}
get A {"multi_last":["b"],"seq":1}
`,
	"a negative batch is an empty one": `
api STREAM.CREATE.A {"allow_direct":true,"name":"A","subjects":["a.>"]}
get A {"batch":-1,"seq":1}
pub a.1 1
pub a.2 2
get A {"batch":-1,"seq":1}
get A {"batch":-1,"seq":9}
`,
	"an update is checked with what its own defaults add": `
api STREAM.CREATE.A {"name":"A"}
api STREAM.UPDATE.A {"allow_msg_counter":true,"name":"A","subject_delete_marker_ttl":3600000000000}
`,
	"an unpin is told of, whether anybody was pinned or not": `
api STREAM.CREATE.A {"name":"A"}
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E","priority_groups":["g"],"priority_policy":"pinned_client"},"stream_name":"A"}
api CONSUMER.UNPIN.A.E {"group":"g"}
`,
	"last_per_subject of nothing begins at the last message": `
api STREAM.CREATE.A {"name":"A","subjects":["a.>"]}
api CONSUMER.CREATE.A.C.a.2 {"config":{"deliver_policy":"last_per_subject","durable_name":"C","filter_subject":"a.2"},"stream_name":"A"}
pub a.1 1
api CONSUMER.CREATE.A.E.a.2 {"config":{"deliver_policy":"last_per_subject","durable_name":"E","filter_subject":"a.2"},"stream_name":"A"}
pub a.1 1
api CONSUMER.CREATE.A.D.a.2 {"config":{"deliver_policy":"last_per_subject","durable_name":"D","filter_subject":"a.2"},"stream_name":"A"}
pub a.2 2
pull A D 0 {"batch":5,"no_wait":true}
`,
	"an update of no stream is that before all else": `
api STREAM.UPDATE.B {"name":"B","num_replicas":3}
`,
	"a message of an atomic batch is stored as the stream transforms it when the batch is committed": `
api STREAM.CREATE.A {"allow_atomic":true,"name":"A","subjects":["a.>"]}
pub a.2 1 {"Nats-Batch-Id":"y","Nats-Batch-Sequence":"1"}
api STREAM.UPDATE.A {"allow_atomic":true,"name":"A","subject_transform":{"dest":"a.x.{{wildcard(1)}}","src":"a.*"},"subjects":["a.>"]}
pub a.1 2 {"Nats-Batch-Commit":"1","Nats-Batch-Id":"y","Nats-Batch-Sequence":"2"}
`,
	"what nobody wants any more after an update of filters leaves an interest stream": `
api STREAM.CREATE.A {"name":"A","retention":"interest","subjects":["a.>"]}
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E","filter_subject":"a.*"},"stream_name":"A"}
pub a.2 1
pub a.3 2
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E","filter_subject":"a.2"},"stream_name":"A"}
api STREAM.INFO.A {}
`,
	"the first message of a fast batch is refused aloud, also by a stream that acknowledges nothing": `
api STREAM.CREATE.A {"allow_batched":true,"name":"A","no_ack":true,"subjects":["a.>"]}
fast a.3 1 x.1.fail.1.0 {"Nats-Expected-Last-Subject-Sequence":"7"}
`,
	"who listens with a wildcard does not set a push consumer going": `
sub push.A.*
api STREAM.CREATE.A {"name":"A","subjects":["a.>"]}
api CONSUMER.CREATE.A.E {"config":{"deliver_subject":"push.A.E","durable_name":"E"},"stream_name":"A"}
pub a.1 1
api CONSUMER.INFO.A.E
sub push.A.E
pub a.1 2
unsub push.A.E
pub a.1 3
api CONSUMER.INFO.A.E
`,
	"nor does a stream that stores what it is sent": `
api STREAM.CREATE.B {"name":"B","subjects":["b.>"]}
api STREAM.CREATE.A {"name":"A","subjects":["a.>"]}
api CONSUMER.CREATE.B.E {"config":{"deliver_subject":"a.1","durable_name":"E"},"stream_name":"B"}
pub b.1 1
api STREAM.INFO.A
`,
	"a reset goes on after what a limit removed": `
api STREAM.CREATE.A {"name":"A","max_msgs":1,"subjects":["a.>"]}
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E"},"stream_name":"A"}
pub a.1 1
pull A E 0 1
pub a.2 2
api CONSUMER.RESET.A.E
`,
	"what a limit removed does not count for min_ack_pending": `
api STREAM.CREATE.A {"name":"A","max_msgs":2,"subjects":["a.>"]}
api CONSUMER.CREATE.A.E {"config":{"ack_policy":"explicit","durable_name":"E","priority_groups":["g"],"priority_policy":"overflow"},"stream_name":"A"}
pub a.1 1
pull A E 0 {"batch":1,"group":"g"}
pub a.2 2
pub a.2 3
pull A E 1 {"batch":1,"group":"g","min_ack_pending":1,"expires":100000000000}
pub a.2 4
pull A E 2 {"batch":1,"group":"g","expires":100000000000}
`,
	"a direct consumer is not counted": `
api STREAM.CREATE.A {"name":"A"}
api CONSUMER.CREATE.A.E {"config":{"deliver_subject":"push.A.E","direct":true,"name":"E"},"stream_name":"A"}
api STREAM.INFO.A
`,
}

// TestDiffCases plays the differences of the past again.
func TestDiffCases(t *testing.T) {
	sides := newDiffSides(t)
	for name, script := range diffCases {
		t.Run(name, func(t *testing.T) {
			p := &diffPlayer{sides: sides, settle: diffSlowSettle, patience: diffPatience}
			d, err := p.play(strings.Split(strings.TrimSpace(script), "\n"))
			noErr(t, err)
			if d != nil {
				t.Error(d)
			}
		})
	}
}
