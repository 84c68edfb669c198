package main

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// A gateway upstream of itself would open connections without end.
func TestOwnAddress(t *testing.T) {
	for _, tc := range []struct {
		listen    string
		port      int
		host, to  string
		isTheSame bool
	}{
		{"0.0.0.0", 4222, "127.0.0.1", "4222", true},
		{"0.0.0.0", 4222, "localhost", "", true},
		{"0.0.0.0", 4222, "localhost", "4223", false},
		{"0.0.0.0", 4222, "nats", "4222", false},
		{"127.0.0.1", 4222, "::1", "4222", true},
		{"gateway", 4222, "Gateway", "4222", true},
		{"10.0.0.1", 4222, "127.0.0.1", "4222", false},
		{"0.0.0.0", -1, "127.0.0.1", "4222", false},
	} {
		if got := own(&server.Options{Host: tc.listen, Port: tc.port}, tc.host, tc.to); got != tc.isTheSame {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
