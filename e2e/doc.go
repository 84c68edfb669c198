// Package e2e tests the gateway's binary as its users meet it: a real process, real clients (nats.go, the nats CLI),
// and a real nats-server beside it for the same case. Most tests are written once and run on both servers; what the two
// say is recorded as a transcript and the transcripts must be equal.
package e2e
