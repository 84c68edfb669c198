package e2e

// consumerScripts are what scriptClient plays against both servers.
var consumerScripts = map[string]string{
	"acks": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_deliver":3,"max_ack_pending":4,"sample_freq":"100%"}}
sub in
pub s.a 1
pub s.a 2
pub s.a 3
pub s.a 4
pub s.a 5
pub s.a 6
pull C in {"batch":20,"expires":60000000000}
api CONSUMER.INFO.S.C
ack 2
ack 1 -NAK
ack 3 -NAK 300ms
acksync 4 +WPI
sleep 600ms
api CONSUMER.INFO.S.C
acksync 3 +TERM odd
acksync 3
acksync 5 -NAK {"delay":100000000}
sleep 400ms
api CONSUMER.INFO.S.C
ack 1 -NAK
ack 1 -NAK
sleep 200ms
api CONSUMER.INFO.S.C
acksync 1
api CONSUMER.INFO.S.C
`,
	"ack wait": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":1000000000,"max_deliver":2}}
sub in
pub s.a 1
pub s.a 2
pull C in {"batch":20,"expires":60000000000}
sleep 400ms
api CONSUMER.INFO.S.C
acksync 1
sleep 1s
api CONSUMER.INFO.S.C
sleep 1200ms
api CONSUMER.INFO.S.C
`,
	"late progress": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":500000000}}
sub in
pub s.a 1
pub s.a 2
pull C in {"batch":2,"expires":100000000}
sleep 1200ms
acksync 1 +WPI
pull C in {"batch":3,"expires":100000000}
sleep 300ms
api CONSUMER.INFO.S.C
`,
	"ack all": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"all","ack_wait":700000000}}
sub in
pub s.a 1
pub s.a 2
pub s.a 3
pub s.a 4
pub s.a 5
pull C in {"batch":4,"expires":60000000000}
acksync 2
api CONSUMER.INFO.S.C
acksync 1
sleep 800ms
pull C in {"batch":4,"expires":60000000000}
api CONSUMER.INFO.S.C
acksync 4
api CONSUMER.INFO.S.C
`,
	"backoff": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","backoff":[400000000,1200000000],"max_deliver":3}}
sub in
pub s.a 1
pub s.a 2
pull C in {"batch":40,"expires":60000000000}
sleep 700ms
sleep 1200ms
ack 1
sleep 1500ms
api CONSUMER.INFO.S.C
`,
	"pinned": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","priority_groups":["g"],"priority_policy":"pinned_client","priority_timeout":1000000000}}
sub in
sub in2
pull C in {"batch":2,"expires":60000000000}
pull C in {"batch":2,"expires":60000000000,"group":"g"}
pull C in2 {"batch":2,"expires":60000000000,"group":"g"}
pub s.a 1
pub s.a 2
pub s.a 3
pull C in {"batch":1,"expires":60000000000,"group":"g","id":"nope"}
pull C in {"batch":1,"expires":60000000000,"group":"g","id":"PIN"}
sleep 1200ms
pub s.a 4
api CONSUMER.UNPIN.S.C {"group":"g"}
pub s.a 5
pub s.a 6
`,
	"priorities": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","priority_groups":["g"],"priority_policy":"prioritized"}}
sub in
sub in2
sub in3
pull C in {"batch":3,"expires":60000000000,"group":"g","priority":2}
pull C in2 {"batch":2,"expires":60000000000,"group":"g","priority":1}
pull C in3 {"batch":2,"expires":60000000000,"group":"g","priority":1}
pub s.a 1
pub s.a 2
pub s.a 3
pub s.a 4
pub s.a 5
sub in4
sub in5
api CONSUMER.CREATE.S.O {"stream_name":"S","config":{"durable_name":"O","ack_policy":"explicit","priority_groups":["g"],"priority_policy":"overflow"}}
pull O in4 {"batch":3,"expires":60000000000,"group":"g","min_pending":5}
pull O in5 {"batch":3,"expires":60000000000,"group":"g","min_pending":7}
pull O in5 {"batch":2,"expires":60000000000,"group":"g","min_ack_pending":2}
pub s.a 6
pub s.a 7
pull O in4 {"batch":1,"expires":1000000000}
pull O in4 {"batch":1,"expires":1000000000,"group":"x"}
pull C in {"batch":1,"expires":1000000000,"group":"g","min_pending":5}
`,
	"pause": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":400000000}}
sub in
pull C in {"batch":10,"expires":60000000000}
pub s.a 1
api CONSUMER.PAUSE.S.C {"pause_until":"2099-01-01T00:00:00Z"}
pub s.a 2
sleep 500ms
pull C in {"batch":10,"no_wait":true}
`,
	"work queue": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"],"retention":"workqueue"}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":1000000000,"max_deliver":2}}
sub in
pub s.a 1
pub s.a 2
pub s.a 3
pull C in {"batch":3,"expires":60000000000}
acksync 1
acksync 2 +TERM
api STREAM.INFO.S
pull C in {"batch":3,"expires":60000000000}
sleep 2500ms
api STREAM.INFO.S
api CONSUMER.INFO.S.C
acksync 3
api STREAM.INFO.S
api CONSUMER.INFO.S.C
`,
	"deleted": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_ack_pending":2}}
sub in
pub s.a 1
pub s.a 2
pub s.a 3
pull C in {"batch":30,"expires":60000000000}
api STREAM.MSG.DELETE.S {"seq":1}
sleep 100ms
api CONSUMER.INFO.S.C
`,
	"ack and next": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}
sub in
pub s.a 1
pub s.a 2
pub s.a 3
pull C in 1
acksync 1 +NXT
acksync 2 +NXT {"batch":1}
acksync 1
acksync 1 -NAK
acksync 1 +WPI
acksync 1 +TERM
api CONSUMER.RESET.S.C
api CONSUMER.RESET.S.C {"seq":2}
pull C in 5
api CONSUMER.INFO.S.C
`,
	"push": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","deliver_subject":"push","ack_wait":1000000000,"max_ack_pending":2}}
pub s.a 1
pub s.a 2
pub s.a 3
sub push
pull C push
sleep 1300ms
ack 1
sleep 100ms
api CONSUMER.INFO.S.C
unsub push
sleep 500ms
api CONSUMER.INFO.S.C
sub push
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","deliver_subject":"push2","ack_wait":1000000000,"max_ack_pending":2}}
unsub push
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","deliver_subject":"push2","ack_wait":1000000000,"max_ack_pending":2}}
sub push2
api CONSUMER.INFO.S.C
`,
	"max waiting": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_waiting":2}}
sub in
sub in2
pull C in {"batch":2,"expires":60000000000}
pull C in2 {"batch":2,"expires":1000000000}
pull C in {"batch":2,"expires":60000000000}
api CONSUMER.INFO.S.C
sleep 1100ms
pull C in2 {"batch":3,"expires":60000000000}
pub s.a 1
pub s.a 2
pub s.a 3
sleep 210ms
pull C in {"batch":5,"no_wait":true}
pub s.a 4
pull C in {"batch":2,"no_wait":true}
api CONSUMER.DELETE.S.C
`,
	"interest": `
api STREAM.CREATE.S {"name":"S","subjects":["s.>"],"retention":"interest"}
pub s.a 0
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}
api CONSUMER.CREATE.S.D {"stream_name":"S","config":{"durable_name":"D","ack_policy":"none","filter_subject":"s.a"}}
sub in
pub s.a 1
pub s.b 2
pull C in 2
ack 2
ack 3
api STREAM.INFO.S
pull D in 2
api STREAM.INFO.S
`,
}
