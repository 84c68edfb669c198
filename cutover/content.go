package cutover

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// HeaderOrigin marks what the gateway itself publishes to the servers to keep them equal after a flip. Clients do not
// see it, and it is no part of a message's content.
const HeaderOrigin = "Ehdb-Origin"

var originField = []byte("\r\n" + HeaderOrigin + ":")

// Marked reports whether a raw header block has HeaderOrigin.
func Marked(header []byte) bool { return bytes.Contains(header, originField) }

// ChainInbox begins the subjects at which the gateway is told what became of what it publishes to the servers to keep
// them equal. Subscribers see them as the reply subject, also of messages that have no room for HeaderOrigin.
const ChainInbox = "_INBOX.ehdb-chain."

// expected begins the headers by which a publisher states what it expects of the stream. They are about the publish,
// and the reverse chain has to set them itself, so they are no part of the content.
var expected = []byte("Nats-Expected-")

// Field is a header field. Its slices are borrowed from the block.
type Field struct{ Name, Value []byte }

// Fields returns the fields of a raw header block that are content, in canonical order: by name, and those of one name
// in the order in which they stand. Names keep their case; blanks around values are dropped. A block that cannot be
// taken apart is one field without a name. It appends to buf.
func Fields(buf []Field, header []byte) []Field {
	if len(header) == 0 {
		return buf
	}
	first, rest, _ := bytes.Cut(header, []byte("\r\n"))
	status, ok := bytes.CutPrefix(first, []byte("NATS/1.0"))
	if !ok {
		return append(buf, Field{Value: header})
	}
	start := len(buf)
	if status = bytes.TrimSpace(status); len(status) > 0 {
		buf = append(buf, Field{Value: status})
	}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) == 0 {
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return append(buf[:start], Field{Value: header})
		}
		if bytes.HasPrefix(name, expected) || string(name) == HeaderOrigin {
			continue
		}
		buf = append(buf, Field{Name: name, Value: bytes.TrimSpace(value)})
	}
	slices.SortStableFunc(buf[start:], func(a, b Field) int { return bytes.Compare(a.Name, b.Name) })
	return buf
}

// Hash is the hash of a message's content: subject, header fields as Fields gives them, and payload. Sequence and time
// are no part of it. It is xxhash64 of the parts, each with its length before it: it finds accidents, not attacks, and
// stands for the content only where the bytes themselves are not at hand (the ledger, digests).
func Hash(subject, header, data []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	hashPart(&d, subject)
	var room [16]Field
	for _, f := range Fields(room[:0], header) {
		hashPart(&d, f.Name)
		hashPart(&d, f.Value)
	}
	hashPart(&d, nil) // no field has an empty name and value, so this ends them
	hashPart(&d, data)
	return d.Sum64()
}

func hashPart(d *xxhash.Digest, b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	_, _ = d.Write(n[:]) // never fails
	_, _ = d.Write(b)
}
