package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
	"github.com/gobwas/ws/wsutil"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// webOptions are options with a WebSocket port that needs no TLS.
func webOptions(set func(*server.Options)) func() *server.Options {
	return func() *server.Options {
		o := &server.Options{Websocket: server.WebsocketOpts{Host: "127.0.0.1", Port: -1, NoTLS: true}}
		if set != nil {
			set(o)
		}
		return o
	}
}

func TestWebsocketClients(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]bool{"plain": false, "compressed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, webOptions(func(o *server.Options) { o.Websocket.Compression = compression })())
			nc, err := nats.Connect("ws://"+s.WebsocketAddr().String(), nats.Compression(compression))
			check(t, err)
			defer nc.Close()
			other := connect(t, s)
			_, err = other.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
			check(t, err)
			check(t, other.Flush())
			for _, size := range []int{0, 1, 125, 126, 70_000, 1 << 20} {
				data := strings.Repeat("0123456789", size/10+1)[:size]
				m, err := nc.Request("echo", []byte(data), 5*time.Second)
				if err != nil || string(m.Data) != data {
					t.Fatalf("%d bytes came back as %d (%v)", size, len(m.Data), err)
				}
			}
			infos := s.Connections()
			if len(infos) != 2 || infos[0].Websocket == infos[1].Websocket {
				t.Errorf("connections: %+v", infos)
			}
		})
	}
}

// TestParityWebsocketLogins compares who gets in, by which credentials, with a real nats-server.
func TestParityWebsocketLogins(t *testing.T) {
	t.Parallel()
	users := func(o *server.Options) {
		only := func(kind string) map[string]struct{} { return map[string]struct{}{kind: {}} }
		o.Users = []*server.User{
			{Username: "any", Password: "p"},
			{Username: "web", Password: "p", AllowedConnectionTypes: only("WEBSOCKET")},
			{Username: "tcp", Password: "p", AllowedConnectionTypes: only("STANDARD")},
		}
	}
	attempts := []struct{ connect, cookie string }{
		{`{"lang":"x"}`, ""},
		{`{"user":"any","pass":"p"}`, ""},
		{`{"user":"web","pass":"p"}`, ""},
		{`{"user":"tcp","pass":"p"}`, ""},
		{`{"user":"any","pass":"x"}`, ""},
		{`{"user":"own","pass":"p"}`, ""},
		{`{"auth_token":"tok"}`, ""},
		{`{"lang":"x"}`, "u=any; w=p"},
		{`{"pass":"x"}`, "u=any; w=p"},
		{`{"user":"any"}`, "u=nobody; w=p"},
		{`{"lang":"x"}`, "tk=tok"},
	}
	for name, opts := range map[string]func() *server.Options{
		"open":  webOptions(nil),
		"users": webOptions(users),
		"cookies": webOptions(func(o *server.Options) {
			users(o)
			o.Websocket.UsernameCookie, o.Websocket.PasswordCookie = "u", "w"
		}),
		"token cookie": webOptions(func(o *server.Options) { o.Authorization, o.Websocket.TokenCookie = "tok", "tk" }),
		"own user": webOptions(func(o *server.Options) {
			o.Websocket.Username, o.Websocket.Password = "own", "p"
		}),
		"own token":    webOptions(func(o *server.Options) { o.Websocket.Token = "tok" }),
		"no_auth_user": webOptions(func(o *server.Options) { users(o); o.Websocket.NoAuthUser = "web" }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := oracle(t, opts()), start(t, opts())
			for _, a := range attempts {
				want := webLogin(strings.TrimPrefix(theirs.WebsocketURL(), "ws://"), a.connect, a.cookie)
				got := webLogin(ours.WebsocketAddr().String(), a.connect, a.cookie)
				if got != want {
					t.Errorf("%s with cookies %q: %s, nats-server: %s", a.connect, a.cookie, got, want)
				}
			}
		})
	}
}

// webLogin connects by hand and returns what the server says to a CONNECT, and how it ends the connection if it does.
func webLogin(addr, connect, cookie string) string {
	h := http.Header{}
	if cookie != "" {
		h.Set("Cookie", cookie)
	}
	conn, br, _, err := ws.Dialer{Header: ws.HandshakeHeaderHTTP(h), Timeout: 5 * time.Second}.
		Dial(context.Background(), "ws://"+addr+"/")
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if br != nil { // INFO came with the answer
		conn = &bufferedConn{conn, br}
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	info, _ := wsutil.ReadServerBinary(conn)
	said := fmt.Sprintf("auth_required %t; ", strings.Contains(string(info), `"auth_required":true`))
	_ = wsutil.WriteClientBinary(conn, []byte("CONNECT "+strings.Replace(connect, "{", `{"verbose":false,`, 1)+"\r\nPING\r\n"))
	for {
		f, err := readFrame(conn)
		switch {
		case err != nil:
			return said + err.Error()
		case f.Header.OpCode == ws.OpClose:
			code, _ := ws.ParseCloseFrameData(f.Payload)
			return said + fmt.Sprint(code)
		case strings.HasPrefix(string(f.Payload), "INFO"):
		case strings.HasPrefix(string(f.Payload), "PONG\r\n"):
			return said + "in"
		default:
			said += string(f.Payload)
		}
	}
}

type bufferedConn struct {
	net.Conn
	r interface{ Read([]byte) (int, error) }
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func TestWebsocketTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.server(t, "server")
	pair, err := tls.LoadX509KeyPair(ca.file("server.pem"), ca.file("server.key"))
	check(t, err)
	s := start(t, webOptions(func(o *server.Options) {
		o.Websocket.NoTLS = false
		o.Websocket.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	})())
	nc, err := nats.Connect("wss://"+s.WebsocketAddr().String(), nats.RootCAs(ca.file("ca.pem")))
	check(t, err)
	defer nc.Close()
	check(t, nc.Flush())
	if infos := s.Connections(); len(infos) != 1 || infos[0].TLS == nil || !infos[0].Websocket {
		t.Errorf("connections: %+v", infos)
	}
	if _, err := nats.Connect("ws://"+s.WebsocketAddr().String(), nats.Timeout(3*time.Second)); err == nil {
		t.Error("a client without TLS was let in")
	}
}

// TestWebsocketFrontIsBounded: who connects and says nothing is gone after the handshake timeout, and clients of other
// pages are refused.
func TestWebsocketFrontIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t, webOptions(func(o *server.Options) {
		o.Websocket.HandshakeTimeout = 100 * time.Millisecond
		o.Websocket.SameOrigin = true
	})())
	conn, err := net.Dial("tcp", s.WebsocketAddr().String())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("silent connection: %v", err)
	}
	d := ws.Dialer{
		Header:     ws.HandshakeHeaderHTTP(http.Header{"Origin": {"http://evil.test"}}),
		Extensions: []httphead.Option{wsflate.DefaultParameters.Option()},
	}
	if _, _, _, err := d.Dial(context.Background(), "ws://"+s.WebsocketAddr().String()); err == nil {
		t.Error("a page of another origin was let in")
	}
}

func TestWebsocketOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]server.WebsocketOpts{
		"requires TLS":             {},
		"trusted operators":        {NoTLS: true, JWTCookie: "jwt"},
		"only one of the two":      {NoTLS: true, Token: "t", Username: "u"},
		"pinned_certs need tls":    {NoTLS: true, TLSPinnedCerts: server.PinnedCertSet{"x": {}}},
		"unable to parse allowed ": {NoTLS: true, AllowedOrigins: []string{"host"}},
		`no_auth_user: "nobody"`:   {NoTLS: true, NoAuthUser: "nobody"},
	} {
		w.Port = -1
		o := &server.Options{Websocket: w}
		if _, err := New(Options{Server: o, Bus: start(t, &server.Options{}).options.Bus}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", w, err, want)
		}
	}
}

// readFrame reads one frame of a server that is trusted not to make it endless.
func readFrame(r io.Reader) (ws.Frame, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return ws.Frame{}, err
	}
	body := make([]byte, min(h.Length, 1<<21))
	_, err = io.ReadFull(r, body)
	return ws.Frame{Header: h, Payload: body}, err
}
