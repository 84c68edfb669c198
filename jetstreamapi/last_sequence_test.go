package jetstreamapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestAStreamAtItsLastSequence: the last message there can be is delivered once, what is published after it is refused
// with the reason, and the server starts again with such streams, whatever brought them there.
func TestAStreamAtItsLastSequence(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.p.must(t, nil, "$JS.API.STREAM.CREATE.FIRST", fmt.Sprintf(
		`{"name":"FIRST","subjects":["first"],"retention":"workqueue","first_seq":%d}`, uint64(storage.MaxSeq)))
	l.p.must(t, nil, "$JS.API.STREAM.CREATE.PURGED",
		`{"name":"PURGED","subjects":["purged"],"retention":"workqueue"}`)
	l.p.must(t, nil, "$JS.API.STREAM.PURGE.PURGED", fmt.Sprintf(`{"seq":%d}`, uint64(storage.MaxSeq)+1))
	for _, name := range []string{"FIRST", "PURGED"} {
		l.p.must(t, nil, "$JS.API.CONSUMER.CREATE."+name+".C",
			`{"stream_name":"`+name+`","config":{"name":"C","durable_name":"C","ack_policy":"explicit"}}`)
	}
	l.p.must(t, nil, "first", "last")
	pull := l.p.request(t, "$JS.API.CONSUMER.MSG.NEXT.FIRST.C", "", `{"batch":1,"no_wait":true}`)
	if pull.data != "last" {
		t.Errorf("the last message: %q", pull.data)
	}
	again := l.p.request(t, "$JS.API.CONSUMER.MSG.NEXT.FIRST.C", "", `{"batch":1,"no_wait":true}`)
	if !strings.Contains(again.header, "404") {
		t.Errorf("after the last message: %q %q", again.header, again.data)
	}
	for range 2 {
		for _, subject := range []string{"first", "purged"} {
			if got := errCode(t, l.p.request(t, subject, "", "one more")); got != 10077 {
				t.Errorf("%s: error %d", subject, got)
			}
		}
		l.end(t)
		l = begin(t, fs)
	}
	l.end(t)
}
