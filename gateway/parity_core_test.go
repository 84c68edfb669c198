package gateway

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

const quietConnect = `CONNECT {"verbose":false,"pedantic":false,"protocol":1,"headers":true,"no_responders":true,"name":"x","lang":"go","version":"1"}` + "\r\n"

func TestParityCore(t *testing.T) {
	limited := func() *server.Options {
		return &server.Options{MaxPayload: 100, MaxControlLine: 64, MaxSubs: 2, MaxSubTokens: 3}
	}
	cluster := func() *server.Options { return &server.Options{Cluster: server.ClusterOpts{Name: "c"}} }
	domain := func() *server.Options {
		return &server.Options{JetStreamDomain: "d", ServerName: "n", ClientAdvertise: "h:1"}
	}
	small := func() *server.Options { return &server.Options{MaxPayload: 100} }
	runParity(t, []script{
		{"bare connect", nil, []string{"a< "}},
		{"cluster name", cluster, []string{"a< " + quietConnect + "PING\r\n"}},
		{"domain", domain, []string{"a< " + quietConnect + "PING\r\n"}},
		{"telnet", nil, []string{"a< SUB foo 1\r\n", "a< PUB foo 5\r\nhello\r\n", "a< PING\r\n", "a< PONG\r\n", "a< UNSUB 1\r\n", "a< PUB foo 1\r\nx\r\n"}},
		{"empty connect", nil, []string{"a< CONNECT {}\r\nPING\r\n", "a< PING\r\n", "a< PUB foo 1\r\nx\r\n"}},
		{"connect without blank", nil, []string{"a< connect{\"verbose\":false}\r\nping\r\n"}},
		{"connect and ping", nil, []string{"a< " + quietConnect + "PING\r\n", "a< PING\r\n"}},
		{"protocol zero", nil, []string{"a< CONNECT {\"verbose\":false}\r\nPING\r\n"}},
		{"protocol two", nil, []string{"a< CONNECT {\"protocol\":2}\r\nPING\r\n"}},
		{"no responders without headers", nil, []string{"a< CONNECT {\"no_responders\":true}\r\nPING\r\n"}},
		{"bad json", nil, []string{"a< CONNECT {\"verbose\":\r\nPING\r\n"}},
		{"json of a wrong type", nil, []string{"a< CONNECT {\"verbose\":\"yes\"}\r\nPING\r\n"}},
		{"account asked for", nil, []string{"a< CONNECT {\"account\":\"X\"}\r\nPING\r\n"}},
		{"lower case and tabs", nil, []string{"a< sub\tfoo \t 1\r\npub  foo\t3\r\nabc\r\nuNsUb 1\r\npInG\r\n"}},
		{"bare LF", nil, []string{"a< SUB foo 1\nPUB foo 2\nab\r\nPING\n"}},
		{"payload with bare LF", nil, []string{"a< PUB foo 2\r\nab\nPING\r\n"}},
		{"payload too long", nil, []string{"a< PUB foo 2\r\nabc\r\nPING\r\n"}},
		{"payload too short", nil, []string{"a< PUB foo 4\r\nab\r\nPING\r\n"}},
		{"ping with words", nil, []string{"a< PING hello there\r\nPONG me\r\nPING\r\n"}},
		{"ping glued", nil, []string{"a< PINGPONG\r\nPING\r\n"}},
		{"plus ok", nil, []string{"a< +OK whatever\r\nPING\r\n"}},
		{"minus err", nil, []string{"a< -ERR 'bye'\r\nPING\r\n"}},
		{"info", nil, []string{"a< INFO {}\r\nPING\r\n"}},
		{"info bad", nil, []string{"a< INFO x\r\nPING\r\n"}},
		{"http", nil, []string{"a< GET / HTTP/1.1\r\nHost: x\r\n\r\n"}},
		{"garbage", nil, []string{"a< \x00\x01\x02"}},
		{"blank line", nil, []string{"a< \r\n"}},
		{"half verb wrong", nil, []string{"a< PUX foo"}},
		{"pub without blank", nil, []string{"a< PUB\r\n"}},
		{"pub without args", nil, []string{"a< PUB \r\nPING\r\n"}},
		{"pub one arg", nil, []string{"a< PUB foo\r\nPING\r\n"}},
		{"pub four args", nil, []string{"a< PUB foo bar baz 3\r\nabc\r\nPING\r\n"}},
		{"pub negative", nil, []string{"a< PUB foo -1\r\nPING\r\n"}},
		{"pub not a number", nil, []string{"a< PUB foo 1x\r\nPING\r\n"}},
		{"pub huge number", nil, []string{"a< PUB foo 99999999999999999999\r\nPING\r\n"}},
		{"pub 999999999", nil, []string{"a< PUB foo 999999999\r\nPING\r\n"}},
		{"pub empty", nil, []string{"a< SUB foo 1\r\nPUB foo 0\r\n\r\nPING\r\n"}},
		{"sub no args", nil, []string{"a< SUB foo\r\nPING\r\n"}},
		{"sub four args", nil, []string{"a< SUB foo bar baz 1\r\nPING\r\n"}},
		{"unsub no args", nil, []string{"a< UNSUB  \r\nPING\r\n"}},
		{"unsub three args", nil, []string{"a< UNSUB 1 2 3\r\nPING\r\n"}},
		{"unsub unknown", nil, []string{"a< UNSUB 77\r\nPING\r\n"}},
		{"unsub bad max", nil, []string{"a< SUB foo 1\r\nUNSUB 1 x\r\nPUB foo 0\r\n\r\nPING\r\n"}},
		{"unsub max", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nUNSUB 1 2\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nPUB foo 1\r\nc\r\nPING\r\n", "a< PUB foo r 1\r\nd\r\nPING\r\n"}},
		{"unsub max later", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nUNSUB 1 3\r\nPUB foo 1\r\nc\r\nPUB foo 1\r\nd\r\nPING\r\n"}},
		{"unsub max already passed", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nUNSUB 1 2\r\nPUB foo 1\r\nc\r\nPING\r\n"}},
		{"verbose order", nil, []string{"a< SUB foo 1\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nPING\r\nPUB foo 1\r\nc\r\n"}},
		{"pedantic", nil, []string{"a< CONNECT {\"verbose\":false,\"pedantic\":true}\r\nPUB foo.* 1\r\na\r\nPUB foo..bar 1\r\nb\r\nPUB foo 1\r\nc\r\nSUB foo..x 1\r\nPING\r\n"}},
		{"not pedantic", nil, []string{"a< CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB foo.* 1\r\nSUB > 2\r\nPUB foo.* 1\r\na\r\nPUB foo..bar 1\r\nb\r\nPUB foo. 1\r\nb\r\nPUB foo.> 1\r\nc\r\nPING\r\n"}},
		{"invalid subscriptions", nil, []string{"a< SUB foo. 1\r\nSUB .foo 2\r\nSUB foo.>.bar 3\r\nSUB a..b 4\r\nSUB foo* 5\r\nSUB foo>x 6\r\nPUB foo* 1\r\na\r\nPUB foo>x 1\r\nb\r\nPING\r\n"}},
		{"sid in use", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nSUB bar 1\r\nSUB bad..x 1\r\nPUB foo 1\r\na\r\nPUB bar 1\r\nb\r\nPING\r\n"}},
		{"wildcards", nil, []string{"a< " + quietConnect + "SUB foo.* 1\r\n", "a< SUB foo.> 2\r\n", "a< SUB * 3\r\n", "a< PUB foo.bar 1\r\na\r\n", "a< PUB foo.bar.baz 1\r\nb\r\n", "a< PUB foo 1\r\nc\r\nPING\r\n"}},
		{"no echo", nil, []string{"a< CONNECT {\"verbose\":false,\"echo\":false,\"protocol\":1}\r\nSUB foo 1\r\n", "b< SUB foo 9\r\n", "a< PUB foo 1\r\na\r\nPING\r\n"}},
		{"no echo and no responders", nil, []string{"a< CONNECT {\"verbose\":false,\"echo\":false,\"protocol\":1,\"headers\":true,\"no_responders\":true}\r\nSUB foo 1\r\nSUB in.> 2\r\nPUB foo in.x 1\r\na\r\nPING\r\n"}},
		{"no responders", nil, []string{"a< " + quietConnect + "SUB in.* 7\r\nPUB nobody in.1 2\r\nhi\r\nPING\r\n", "a< PUB nobody elsewhere 2\r\nhi\r\nPING\r\n", "a< PUB no.body in.2 2\r\nhi\r\nPUB in.3 1\r\nx\r\nPING\r\n"}},
		{"no responders and a queue", nil, []string{"a< " + quietConnect + "SUB in.* q 7\r\nPUB nobody in.1 2\r\nhi\r\nPING\r\n"}},
		{"queue", nil, []string{"a< " + quietConnect + "SUB foo q 1\r\nSUB foo q 1x\r\nUNSUB 1x\r\nPUB foo 1\r\na\r\nPING\r\n"}},
		{"queue and plain", nil, []string{"a< " + quietConnect + "SUB foo q 1\r\nPUB foo 1\r\na\r\nPING\r\n", "b< " + quietConnect + "SUB foo 2\r\nPING\r\n", "a< PUB foo 1\r\na\r\nPING\r\n"}},
		{"system queue", nil, []string{"a< SUB foo _sys_ 1\r\nPING\r\n"}},
		{"reply", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nPUB foo bar 3\r\nabc\r\nPING\r\n"}},
		{"reserved replies", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nPUB foo $JS.ACK.x 1\r\na\r\nPUB foo $JS.ACK. 1\r\na\r\nPUB foo _R_.x 1\r\nb\r\nPUB foo _GR_.x 1\r\nc\r\nPUB _GR_.a 1\r\nd\r\nPUB $GR.a 1\r\nd\r\nPUB $NRG.a 1\r\nd\r\nPUB _R_.a 1\r\nd\r\nPUB foo 1\r\ne\r\nPING\r\n"}},
		{"second connect", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nPING\r\n", "a< " + quietConnect + "PUB foo 1\r\na\r\nPING\r\n"}},
		{"sub before connect", nil, []string{"a< SUB foo 1\r\n", "a< CONNECT {\"verbose\":false,\"echo\":false}\r\nPUB foo 1\r\na\r\nPING\r\n", "b< PUB foo 1\r\nb\r\n"}},
		{"headers", nil, []string{"a< " + quietConnect + "SUB foo 1\r\n", "b< CONNECT {\"verbose\":false}\r\nSUB foo 2\r\n", "a< HPUB foo 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPING\r\n", "a< HPUB foo bar 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\nPING\r\n", "b< PING\r\n"}},
		{"hpub without headers", nil, []string{"a< CONNECT {\"verbose\":false}\r\nHPUB foo 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPING\r\n"}},
		{"hpub before connect", nil, []string{"a< HPUB foo 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPING\r\n"}},
		{"hpub header of zero", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nHPUB foo 0 3\r\nabc\r\nPING\r\n"}},
		{"hpub header too large", nil, []string{"a< " + quietConnect + "HPUB foo 4 3\r\nabc\r\nPING\r\n"}},
		{"hpub bad header size", nil, []string{"a< " + quietConnect + "HPUB foo x 3\r\nabc\r\nPING\r\n"}},
		{"hpub bad total", nil, []string{"a< " + quietConnect + "HPUB foo 3 x\r\nabc\r\nPING\r\n"}},
		{"hpub two args", nil, []string{"a< " + quietConnect + "HPUB foo 3\r\nabc\r\nPING\r\n"}},
		{"hpub that is no header", nil, []string{"a< " + quietConnect + "SUB foo 1\r\nHPUB foo 3 6\r\nabcdef\r\nPING\r\n"}},
		{"no header support", func() *server.Options { return &server.Options{NoHeaderSupport: true} }, []string{"a< CONNECT {\"headers\":true}\r\nPING\r\nHPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n"}},
		{"pieces", nil, []string{"a< S|U|B| |fo|o |1|\r|\n|P|U|B| f|oo| 5|\r|\n|he|llo|\r|\n|PIN|G\r|\n"}},
		{"max payload", small, []string{"a< " + quietConnect + "PUB foo 101\r\n" + strings.Repeat("x", 101) + "\r\nPING\r\n"}},
		{"max payload exactly", small, []string{"a< " + quietConnect + "SUB foo 1\r\nPUB foo 100\r\n" + strings.Repeat("x", 100) + "\r\nPING\r\n"}},
		{"max control line", limited, []string{"a< CONNECT {}\r\nSUB " + strings.Repeat("x", 70) + " 1\r\nPING\r\n"}},
		{"max control line exactly", limited, []string{"a< CONNECT {}\r\nSUB " + strings.Repeat("x", 62) + " 1\r\nPING\r\n"}},
		{"max control line unfinished", limited, []string{"a< CONNECT {}\r\nSUB " + strings.Repeat("x", 70)}},
		{"connect longer than a line", limited, []string{"a< CONNECT {\"name\":\"" + strings.Repeat("x", 70) + "\"}\r\n"}},
		{"max subscriptions", limited, []string{"a< SUB foo 1\r\nSUB bar 2\r\nSUB baz 3\r\nUNSUB 1\r\nSUB baz 3\r\nPING\r\n"}},
		{"max tokens", limited, []string{"a< SUB a.b.c 1\r\nSUB a.b.c.d 2\r\nPING\r\n"}},
		{"payload then command", nil, []string{"a< PUB foo 3|\r\nab|c\r|\nPING\r\n"}},
		{"lf first", nil, []string{"a< " + quietConnect + "SUB \nfoo 1\r\nPING\r\n", "a< PUB foo 1\r\na\r\nPING\r\n"}},
		{"cr inside", nil, []string{"a< " + quietConnect + "SUB foo\rq 1\r\nPUB foo 1\r\na\r\nPING\r\n"}},
		{"hmsg", nil, []string{"a< " + quietConnect + "MSG foo 1 3\r\nabc\r\nPING\r\n"}},
		{"route verb", nil, []string{"a< RS+ $G foo\r\nPING\r\n"}},
	})
}
