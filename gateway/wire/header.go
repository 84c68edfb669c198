package wire

import (
	"bytes"
	"strconv"
)

const (
	// HeaderLine starts every header block; a status follows it on the same line.
	HeaderLine = "NATS/1.0"
	// HeaderSubject names the subject of a request that nobody hears.
	HeaderSubject = "Nats-Subject"
	// StatusNoResponders is the status of the answer to such a request.
	StatusNoResponders = 503
)

// AppendStatus appends the first line of a header block that carries a status, without the line that ends the block.
func AppendStatus(dst []byte, code int, description string) []byte {
	dst = append(dst, HeaderLine...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, int64(code), 10)
	if description != "" {
		dst = append(dst, ' ')
		dst = append(dst, description...)
	}
	return append(dst, crlf...)
}

// AppendHeader appends one header.
func AppendHeader(dst []byte, key string, value []byte) []byte {
	dst = append(dst, key...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, crlf...)
}

// AppendNoResponders appends the HMSG that tells a requester at once that nobody hears subject.
func AppendNoResponders(dst, subject, sid, reply []byte) []byte {
	hdr := len(HeaderLine) + len(" 503\r\n") + len(HeaderSubject) + len(": \r\n\r\n") + len(subject)
	dst = AppendMsgLine(dst, reply, sid, nil, hdr, hdr)
	dst = AppendStatus(dst, StatusNoResponders, "")
	dst = AppendHeader(dst, HeaderSubject, subject)
	return append(dst, "\r\n\r\n"...)
}

// Status returns the status of a header block and the text behind it; 0 if it has none.
func Status(header []byte) (code int, description string) {
	line, _, _ := bytes.Cut(header, []byte(crlf))
	rest, ok := bytes.CutPrefix(line, []byte(HeaderLine))
	if !ok {
		return 0, ""
	}
	rest = bytes.TrimSpace(rest)
	num, text, _ := bytes.Cut(rest, []byte(" "))
	n := parseSize(num)
	if n < 0 {
		return 0, ""
	}
	return n, string(bytes.TrimSpace(text))
}

// HeaderValue returns the first value of key in a header block, nil if it is not there. Keys are compared as written,
// blanks around the value are cut off. The result points into header.
func HeaderValue(header []byte, key string) []byte {
	_, rest, ok := bytes.Cut(header, []byte(crlf))
	for ok && len(rest) > 0 {
		var line []byte
		line, rest, ok = bytes.Cut(rest, []byte(crlf))
		if len(line) > len(key) && line[len(key)] == ':' && string(line[:len(key)]) == key {
			return bytes.TrimSpace(line[len(key)+1:])
		}
	}
	return nil
}
