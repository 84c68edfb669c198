// Package ws carries a connection's bytes in WebSocket frames (RFC 6455), on request compressed (RFC 7692).
//
// [Upgrade] answers the HTTP request that begins such a connection; the [Conn] it returns reads and writes the bytes
// inside the frames. The frames' borders have no meaning. What RFC 6455 leaves to libraries is done by gobwas/ws.
package ws
