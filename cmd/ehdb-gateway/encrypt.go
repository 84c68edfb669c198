package main

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// encryption is how the data directory is encrypted: jetstream { key, cipher, prev_key }.
func encryption(o *server.Options) crypt.RingOptions {
	ring := crypt.RingOptions{Cipher: cipherOf(o), Secret: []byte(o.JetStreamKey)}
	if o.JetStreamOldKey != "" {
		ring.Previous = [][]byte{[]byte(o.JetStreamOldKey)}
	}
	return ring
}

// cipherOf is the configured cipher; as in nats-server, ChaCha20-Poly1305 if there is none.
func cipherOf(o *server.Options) crypt.Cipher {
	if o.JetStreamCipher == server.AES {
		return crypt.AES256GCM
	}
	return crypt.ChaCha20Poly1305
}

// withKeyHint names the keys of the configuration that an error is about.
func withKeyHint(err error) error {
	switch {
	case errors.Is(err, crypt.ErrNoSecret):
		return fmt.Errorf("%w (jetstream { key })", err)
	case errors.Is(err, crypt.ErrSecret):
		return fmt.Errorf("%w (jetstream { key, prev_key })", err)
	}
	return err
}
