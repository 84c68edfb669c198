package flip

import "github.com/nats-io/nats-server/v2/server"

// NotServable is why a consumer of the servers cannot be served from here by itself; empty: it can.
func NotServable(info *server.ConsumerInfo) string { return notServable(info) }
