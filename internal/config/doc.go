// Package config turns the command line, the configuration file and the environment into one [Config].
//
// Flags and file are nats-server's: they are read by nats-server's own flag set and parser, so that what starts a
// nats-server starts a gateway. Two blocks of the file are the gateway's own, ehdb {} and bus {}; nats-server's parser
// never acts on them. docs/config.md lists every key.
//
// Nothing here opens a port or writes a file: the same code serves the start and -t.
package config
