// Package upstream is the way to the NATS servers that a gateway stands in front of.
//
// [Upstream] opens one connection for each client and hands it over at the point where a client comes in: behind the
// server's first INFO, inside TLS. It knows several servers, looks their names up anew for each connection, leaves
// those that failed aside for a while, and gives up in bounded time. [Monitor] asks the servers' monitoring pages.
package upstream
