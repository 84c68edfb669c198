// Package monitor is the HTTP side of the server: nats-server's monitoring pages (varz, connz, subsz, jsz, healthz and
// their kin), in nats-server's JSON, and /metrics.
//
// It holds no state of the server. What it shows it asks of the sources in [Options]; each of them is an interface
// declared here and implemented by whoever has the facts. A page that belongs to a part this server does not have
// (routes, gateways, leaf nodes) answers as a nats-server without that part does.
package monitor
