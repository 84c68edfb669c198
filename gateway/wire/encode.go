package wire

import (
	"strconv"
)

const crlf = "\r\n"

// The fixed lines, ready to send.
const (
	Ping = "PING\r\n"
	Pong = "PONG\r\n"
	OK   = "+OK\r\n"
	CRLF = crlf
)

// NoHeader is the header length of a message without a header block.
const NoHeader = -1

// msgOverhead bounds what AppendMsgLine adds to the subject, sid and reply: verb, blanks, two numbers, CRLF.
const msgOverhead = 32

// MsgLineMax returns an upper bound of what AppendMsgLine appends.
func MsgLineMax(subject, sid, reply []byte) int {
	return len(subject) + len(sid) + len(reply) + msgOverhead
}

// AppendMsgLine appends the first line of a MSG (hdr is NoHeader) or HMSG. total counts header block and data. What
// follows on the wire is the payload and a CRLF.
func AppendMsgLine(dst, subject, sid, reply []byte, hdr, total int) []byte {
	if hdr != NoHeader {
		dst = append(dst, 'H')
	}
	dst = append(dst, "MSG "...)
	dst = append(dst, subject...)
	dst = append(dst, ' ')
	dst = append(dst, sid...)
	dst = append(dst, ' ')
	if len(reply) > 0 {
		dst = append(dst, reply...)
		dst = append(dst, ' ')
	}
	if hdr != NoHeader {
		dst = strconv.AppendUint(dst, uint64(hdr), 10)
		dst = append(dst, ' ')
	}
	dst = strconv.AppendUint(dst, uint64(total), 10)
	return append(dst, crlf...)
}

// AppendMsg appends a whole MSG or HMSG. An empty header means a MSG.
func AppendMsg(dst, subject, sid, reply, header, data []byte) []byte {
	hdr := NoHeader
	if len(header) > 0 {
		hdr = len(header)
	}
	dst = AppendMsgLine(dst, subject, sid, reply, hdr, len(header)+len(data))
	dst = append(dst, header...)
	dst = append(dst, data...)
	return append(dst, crlf...)
}

// AppendErr appends a -ERR line.
func AppendErr(dst []byte, text string) []byte {
	dst = append(dst, "-ERR '"...)
	dst = append(dst, text...)
	return append(dst, "'\r\n"...)
}

// AppendInfo appends an INFO line. doc is the JSON document.
func AppendInfo(dst, doc []byte) []byte {
	dst = append(dst, "INFO "...)
	dst = append(dst, doc...)
	return append(dst, crlf...)
}
