// Package logging makes the process's slog.Logger: lines as nats-server writes them (so that what greps a nats-server's
// log finds what it looks for), or JSON.
//
// # Messages with places
//
// slog wants constant messages, nats-server's log has values inside its sentences. A message may therefore name
// attributes in braces:
//
//	log.Info("Listening for client connections on {addr}", slog.String("addr", addr))
//
// The text form puts the value there; JSON keeps message and attribute apart. Attributes that the message does not name
// follow it as key=value.
package logging
