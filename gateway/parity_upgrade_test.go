package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// upgrades are requests to a WebSocket port, as what differs from the usual one: lines that are added, or with "-" in front
// left out. The first line is the request line if it begins with a method.
var upgrades = []string{
	"",
	"GET /any/path?x=1 HTTP/1.1", "GET /leafnode HTTP/1.1", "GET /mqtt HTTP/1.1", "GET /leafnode/x HTTP/1.1", "GET * HTTP/1.1", "GET x HTTP/1.1",
	"POST / HTTP/1.1", "HEAD / HTTP/1.1", "OPTIONS / HTTP/1.1", "CONNECT / HTTP/1.1", "get / HTTP/1.1", "GET / HTTP/1.0", "GET / HTTP/2.0", "GET / HTTP/0.9",
	"GET /", "GET", "rubbish",
	"-Host", "-Upgrade", "-Connection", "-Sec-WebSocket-Key", "-Sec-WebSocket-Version",
	"-Upgrade|Upgrade: WebSocket", "-Upgrade|Upgrade: websocket, other", "-Upgrade|Upgrade: h2c",
	"-Connection|Connection: upgrade", "-Connection|Connection: keep-alive, Upgrade", "-Connection|Connection: close",
	"-Sec-WebSocket-Key|Sec-WebSocket-Key: x", "-Sec-WebSocket-Key|Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Njc=", "-Sec-WebSocket-Key|Sec-WebSocket-Key: ",
	"-Sec-WebSocket-Version|Sec-WebSocket-Version: 8", "-Sec-WebSocket-Version|Sec-WebSocket-Version: 14", "-Sec-WebSocket-Version|Sec-WebSocket-Version: x",
	"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover",
	"Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Sec-WebSocket-Extensions: other",
	"Sec-WebSocket-Extensions: other, permessage-deflate; server_no_context_takeover; client_no_context_takeover",
	"Sec-WebSocket-Protocol: nats", "Nats-No-Masking: true", "Nats-No-Masking: false", "nats-no-masking: true", "Nats-No-Masking: yes",
	"Origin: http://app.test", "Origin: https://app.test", "Origin: http://app.test:80", "Origin: http://other.test", "Origin: rubbish", "Origin: ", "Origin: http://HOST", "Origin: https://HOST",
	"Sec-WebSocket-Origin: http://other.test", "Sec-WebSocket-Origin: http://app.test", "Origin: http://app.test|Sec-WebSocket-Origin: http://other.test",
	"X-Forwarded-For: 1.2.3.4", "X-Forwarded-For: rubbish", "Cookie: a=b", "Cookie: rubbish",
}

// upgradesDiffer are the answers of ours that differ, by the request: what serves no clients, and forms that nothing sends.
var upgradesDiffer = map[string]string{
	"GET /leafnode HTTP/1.1": "404", "GET * HTTP/1.1": "101", "GET / HTTP/1.0": "505",
	"GET /": "no answer", "GET": "no answer", "rubbish": "no answer",
	"-Upgrade|Upgrade: websocket, other":                             "400",
	"-Sec-WebSocket-Key|Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Njc=": "101",
	"-Sec-WebSocket-Version|Sec-WebSocket-Version: 8":                "426",
	"-Sec-WebSocket-Version|Sec-WebSocket-Version: 14":               "426",
	"-Sec-WebSocket-Version|Sec-WebSocket-Version: x":                "426",
}

// TestParityUpgrades: a request to a WebSocket port gets the answer that nats-server gives, but for some on purpose.
func TestParityUpgrades(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*server.Options){
		"plain":       nil,
		"compression": func(o *server.Options) { o.Websocket.Compression = true },
		"same origin": func(o *server.Options) { o.Websocket.SameOrigin = true },
		"origins":     func(o *server.Options) { o.Websocket.AllowedOrigins = []string{"http://app.test"} },
		"headers":     func(o *server.Options) { o.Websocket.Headers = map[string]string{"X-A": "b"} },
	} {
		opts := webOptions(set)
		theirs, ours := oracle(t, opts()), start(t, opts())
		for _, change := range upgrades {
			want := upgradeAnswer(t, strings.TrimPrefix(theirs.WebsocketURL(), "ws://"), change)
			got := upgradeAnswer(t, ours.WebsocketAddr().String(), change)
			if differs, ok := upgradesDiffer[change]; ok && want != got && strings.HasPrefix(got, differs) {
				continue
			}
			if want != got {
				t.Errorf("%s, %q:\nnats-server: %s\ngateway:     %s", name, change, want, got)
			}
		}
	}
}

func upgradeAnswer(t *testing.T, addr, change string) string {
	t.Helper()
	request := []string{
		"GET / HTTP/1.1", "Host: " + addr, "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
	}
	for c := range strings.SplitSeq(strings.ReplaceAll(change, "HOST", addr), "|") {
		without, dropped := strings.CutPrefix(c, "-")
		switch {
		case dropped:
			for i, line := range request {
				if strings.HasPrefix(line, without+":") {
					request = append(request[:i], request[i+1:]...)
					break
				}
			}
		case strings.Contains(c, ": "):
			request = append(request, c)
		case c != "":
			request[0] = c
		}
	}
	c, err := net.Dial("tcp", addr)
	check(t, err)
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, strings.Join(request, "\r\n")+"\r\n\r\n")
	check(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "no answer"
	}
	out := fmt.Sprint(answer.StatusCode)
	if answer.StatusCode == http.StatusSwitchingProtocols {
		for _, name := range []string{"Upgrade", "Connection", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Nats-No-Masking", "X-A"} {
			out += fmt.Sprintf(" %s=%q", name, strings.ReplaceAll(answer.Header.Get(name), "; ", ";"))
		}
	}
	return out
}
