package relay_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/cutover/relay"
)

// TestAloneProxied: who is let in by way of a trusted proxy alone is not let in without it.
func TestAloneProxied(t *testing.T) {
	key, err := nkeys.CreateUser()
	check(t, err)
	public, err := key.PublicKey()
	check(t, err)
	s := newSite(t, &server.Options{
		Users: []*server.User{
			{Username: "alice", Password: "a", ProxyRequired: true}, {Username: "own", Password: "own"},
		},
		Proxies: &server.ProxiesConfig{Trusted: []*server.ProxyConfig{{Key: public}}},
	}, nats.UserInfo("own", "own"))
	s.served(t, "$G", relay.Here)
	connect(t, s.gw.ClientURL(), nats.UserInfo("own", "own"))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.gw.ClientURL(), "nats://"))
	check(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	check(t, err)
	var info struct {
		Nonce string `json:"nonce"`
	}
	check(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info))
	sig, err := key.Sign([]byte(info.Nonce))
	check(t, err)
	fmt.Fprintf(conn, "CONNECT {\"user\":\"alice\",\"pass\":\"a\",\"verbose\":false,\"protocol\":1,\"headers\":true,\"proxy_sig\":%q}\r\nPING\r\n",
		base64.RawURLEncoding.EncodeToString(sig))
	if line, err = in.ReadString('\n'); err != nil || line != "PONG\r\n" {
		t.Fatalf("by way of the proxy: %q, %v", line, err)
	}
	time.Sleep(200 * time.Millisecond)
	s.stopNATS()
	if nc, err := nats.Connect(s.gw.ClientURL(), nats.UserInfo("alice", "a")); err == nil {
		nc.Close()
		t.Error("let in without the proxy while the servers are gone")
	}
	check(t, connect(t, s.gw.ClientURL(), nats.UserInfo("own", "own")).Flush())
}
