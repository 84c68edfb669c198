package gateway

import (
	"bytes"
	"testing"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// While somebody writes in the writer's place nobody else may, and what he could not send goes out before what came
// meanwhile.
func TestClaim(t *testing.T) {
	var o outbound
	o.init(&wire.Pool{}, 1<<20)
	o.mu.Lock()
	o.append("first ")
	b, ok := o.claim()
	o.append("second")
	_, again := o.claim()
	o.mu.Unlock()
	if !ok || again || string(b) != "first " {
		t.Fatalf("claimed %q: %v, and again: %v", b, ok, again)
	}
	taken := make(chan []byte)
	go func() {
		chain, _ := o.take(nil)
		taken <- bytes.Join(chain, nil)
	}()
	o.unclaim(b, 2)
	if got := string(<-taken); got != "rst second" {
		t.Fatalf("the writer got %q", got)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending != int64(len("rst second")) {
		t.Fatalf("%d bytes are pending", o.pending)
	}
	o.append("third")
	if _, ok := o.claim(); ok {
		t.Fatal("claimed while the writer was at work")
	}
}
