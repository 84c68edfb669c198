package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Metadata keys with which a consumer asks for what NATS does not have. docs/extensions.md describes them.
const (
	extensionPrefix = "ehdb."

	// KeyDeadLetter names the stream that gets what was delivered too often or was terminated.
	KeyDeadLetter = "ehdb.dead_letter"
	// KeyNakBackoff lets a NAK without a delay wait as long as backoff says.
	KeyNakBackoff = "ehdb.nak_backoff"
	// KeyPeek makes a consumer of a work queue that takes nothing from it.
	KeyPeek = "ehdb.peek"
	// KeyKeyShared tells the key of a message; the messages of one key are in the hands of one worker at a time.
	KeyKeyShared = "ehdb.key_shared"
)

// DeadLetter returns the name of the stream for dead letters; empty: none.
func DeadLetter(cfg *server.ConsumerConfig) string { return cfg.Metadata[KeyDeadLetter] }

// Peeks reports whether the consumer only looks.
func Peeks(cfg *server.ConsumerConfig) bool { return isOn(cfg, KeyPeek) }

// isOn reports whether a key is set to true; its value was checked.
func isOn(cfg *server.ConsumerConfig, key string) bool {
	on, err := strconv.ParseBool(cfg.Metadata[key])
	return err == nil && on
}

// CheckMetadata refuses keys of the server's own that it does not know. known are those that it does.
func CheckMetadata(metadata map[string]string, known ...string) error {
	for key := range metadata {
		if strings.HasPrefix(key, extensionPrefix) && !slices.Contains(known, key) {
			if len(known) == 0 {
				return fmt.Errorf("metadata key %q is not known: streams have no keys that begin with %q",
					key, extensionPrefix)
			}
			return fmt.Errorf("metadata key %q is not known: those that begin with %q are %s",
				key, extensionPrefix, strings.Join(known, ", "))
		}
	}
	return nil
}

func checkExtensions(cfg *server.ConsumerConfig, stream *server.StreamConfig, _ Limits) *server.ApiError {
	for _, check := range []func(*server.ConsumerConfig, *server.StreamConfig) error{
		checkKeys, checkDeadLetter, checkNakBackoff, checkPeek, checkKeyShared,
	} {
		if err := check(cfg, stream); err != nil {
			return server.NewJSConsumerCreateError(err)
		}
	}
	return nil
}

func checkKeys(cfg *server.ConsumerConfig, _ *server.StreamConfig) error {
	if err := CheckMetadata(cfg.Metadata, KeyDeadLetter, KeyKeyShared, KeyNakBackoff, KeyPeek); err != nil {
		return err
	}
	for _, key := range []string{KeyNakBackoff, KeyPeek} {
		if value, set := cfg.Metadata[key]; set {
			if _, err := strconv.ParseBool(value); err != nil {
				return fmt.Errorf("%s is %q, it has to be true or false", key, value)
			}
		}
	}
	return nil
}

func checkDeadLetter(cfg *server.ConsumerConfig, stream *server.StreamConfig) error {
	to, set := cfg.Metadata[KeyDeadLetter]
	switch {
	case !set:
		return nil
	case !validAssetName(to):
		return fmt.Errorf("%s is %q, which is no name of a stream", KeyDeadLetter, to)
	case to == stream.Name:
		return fmt.Errorf("%s names the consumer's own stream", KeyDeadLetter)
	case cfg.AckPolicy != server.AckExplicit:
		return fmt.Errorf("%s needs ack_policy explicit", KeyDeadLetter)
	}
	return nil
}

func checkNakBackoff(cfg *server.ConsumerConfig, _ *server.StreamConfig) error {
	switch {
	case !isOn(cfg, KeyNakBackoff):
		return nil
	case len(cfg.BackOff) == 0:
		return errors.New(KeyNakBackoff + " needs a backoff")
	case cfg.AckPolicy != server.AckExplicit && cfg.AckPolicy != server.AckAll:
		return errors.New(KeyNakBackoff + " needs ack_policy explicit or all")
	}
	return nil
}

func checkPeek(cfg *server.ConsumerConfig, stream *server.StreamConfig) error {
	switch {
	case !Peeks(cfg):
		return nil
	case stream.Retention != server.WorkQueuePolicy:
		return errors.New(KeyPeek + " is for consumers of a stream with retention workqueue: " +
			"on others a consumer with ack_policy none does the same")
	case cfg.AckPolicy != server.AckNone:
		return errors.New(KeyPeek + " needs ack_policy none: what is only looked at is not acknowledged")
	}
	return nil
}

func checkKeyShared(cfg *server.ConsumerConfig, _ *server.StreamConfig) error {
	text, set := cfg.Metadata[KeyKeyShared]
	if !set {
		return nil
	}
	if _, err := parseKeyRule(text); err != nil {
		return err
	}
	switch {
	case cfg.DeliverSubject != "":
		return errors.New(KeyKeyShared + " is for pull consumers: the inbox of a request tells the worker")
	case cfg.AckPolicy != server.AckExplicit:
		return errors.New(KeyKeyShared + " needs ack_policy explicit: an ack is what lets the next message of a key go")
	case cfg.PriorityPolicy != server.PriorityNone || len(cfg.PriorityGroups) > 0:
		return errors.New(KeyKeyShared + " cannot be combined with priority groups: both say who gets a message")
	case cfg.ReplayPolicy == server.ReplayOriginal:
		return errors.New(KeyKeyShared + " needs replay_policy instant: messages of a key that waits come later")
	case cfg.MaxAckPending <= 0:
		return errors.New(KeyKeyShared + " needs a bounded max_ack_pending: the keys of what is outstanding are kept")
	}
	return nil
}
