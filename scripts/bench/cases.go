package main

// notAlways skips what does not touch the disk on the server that differs only there.
func notAlways(s serverSpec) bool { return s.name == natsAlways }

var cases = []benchCase{
	{
		name: "core-publish", what: "core publish, 1 connection, no subscriber", msgs: 1_000_000,
		target: 0.8, against: natsDefault, skip: notAlways, run: corePublish,
	},
	{
		name: "core-1:1", what: "core publish to 1 subscriber", msgs: 1_000_000,
		target: 0.8, against: natsDefault, skip: notAlways, run: fanOut(1),
	},
	{
		name: "core-1:4", what: "core publish to 4 subscribers", msgs: 300_000,
		target: 0.8, against: natsDefault, skip: notAlways, run: fanOut(4),
	},
	{
		name: "js-async", what: "JetStream async publish, file, ours fsynced", msgs: 200_000,
		target: 1, against: natsDefault, run: asyncPublish,
	},
	{
		name: "js-sync-1", what: "JetStream sync publish, 1 connection", msgs: 3_000,
		target: 1, against: natsAlways, run: syncPublish(1),
	},
	{
		name: "js-sync-64", what: "JetStream sync publish, 64 connections of nats.go", msgs: 30_000,
		run: syncPublish(64), // bound by the clients on a small machine
	},
	{
		name: "js-sync-64-lean", what: "JetStream sync publish, 64 connections of a lean client", msgs: 60_000,
		target: 8, against: natsAlways, run: leanPublish(64),
	},
	{
		name: "js-fetch", what: "pull consumer, fetch 500 and ack each", msgs: 100_000,
		target: 1, against: natsDefault, skip: notAlways, run: fetchConsume,
	},
	{
		name: "js-ordered", what: "ordered consumer", msgs: 200_000,
		target: 1, against: natsDefault, skip: notAlways, run: orderedConsume,
	},
}
