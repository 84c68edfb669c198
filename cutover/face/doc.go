// Package face is what operators see of the cutover: an HTTP API below /cutover/v1/ on the monitoring port, which
// ehdbctl and the console use, /parity/self-test, and metrics. What it shows and does is an Engine's.
//
// Reading needs no login, as on all monitoring pages, but payloads and headers of messages are shown and everything is
// changed only with the operator's token: a file in the data directory (Token).
package face
