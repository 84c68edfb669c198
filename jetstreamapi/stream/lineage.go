package stream

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Messages that were copied from another stream carry where they come from in the header Nats-Stream-Source:
//
//	<stream[:hash of its API prefix][:C=hash of its consumer]> <sequence> <filters> <destinations> <subject>
//
// and, where it is known, the identity of the stream. Filters and destinations are lists with form feeds between, ">"
// where there is none. The first, third and fourth field together are the index name of the source they came by: a
// target finds by it where to go on.

// ShortHash is nats-server's hash of names: eight letters and digits.
func ShortHash(text string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(text))
	out := sum[:8]
	for i, b := range out {
		out[i] = digits[int(b)%len(digits)]
	}
	return string(out)
}

// Identity tells one incarnation of a stream from another of the same name.
func Identity(created time.Time) string { return ShortHash(created.UTC().Format(time.RFC3339Nano)) }

// originName is a source's stream, told from streams of the same name elsewhere.
func originName(s *server.StreamSource) string {
	if s.External == nil {
		return s.Name
	}
	return s.Name + ":" + ShortHash(s.External.ApiPrefix)
}

// IndexName returns the index name of a source.
func IndexName(s *server.StreamSource) string {
	name := originName(s)
	if s.Consumer != nil {
		name += ":C=" + ShortHash(s.Consumer.Name)
	}
	filters, destinations := orAll(s.FilterSubject), everything
	if len(s.SubjectTransforms) > 0 {
		var from, to []string
		for _, t := range s.SubjectTransforms {
			from, to = append(from, orAll(t.Source)), append(to, orAll(t.Destination))
		}
		filters, destinations = strings.Join(from, "\f"), strings.Join(to, "\f")
	}
	return name + " " + filters + " " + destinations
}

func orAll(subject string) string {
	if subject == "" {
		return everything
	}
	return subject
}

// sourceHeader is the value of Nats-Stream-Source.
func sourceHeader(index string, seq uint64, subject []byte, identity string) string {
	name, rest, _ := strings.Cut(index, " ")
	out := name + " " + strconv.FormatUint(seq, 10) + " " + rest + " " + string(subject)
	if identity != "" {
		out += " " + identity
	}
	return out
}

// parseSourceHeader takes a value of Nats-Stream-Source apart. index is empty where it has the form of nats-server
// before 2.10, which names the stream alone.
func parseSourceHeader(value string) (stream, index string, at Position, ok bool) {
	fields := strings.Split(value, " ")
	if len(fields) != 2 && len(fields) < 4 {
		return "", "", Position{}, false
	}
	seq, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return "", "", Position{}, false
	}
	at.Seq = seq
	if len(fields) >= 4 {
		index = fields[0] + " " + fields[2] + " " + fields[3]
	}
	if len(fields) >= 6 {
		at.Identity = fields[5]
	}
	return fields[0], index, at, true
}

// belongsTo reports whether a copied message came by the source.
func belongsTo(stream, index string, s *server.StreamSource) bool {
	if index == "" {
		return stream == originName(s)
	}
	return index == IndexName(s)
}
