// Package jsapi is what JetStream's API looks like on the wire: its subjects, requests, answers, acks and statuses. It
// has no logic of its own, and it is the one place that borrows types from nats-server.
package jsapi
