package pilot

import (
	"testing"

	"github.com/noetl/ehdb-gateway/cutover"
)

// TestCopiesOfAStart: what copies streams begins while the engine is opened, and asks whether it has to wait.
func TestCopiesOfAStart(t *testing.T) {
	if why := new(Pilot).waits(cutover.Scope{Account: "$G", Stream: "S"}); why == "" {
		t.Error("it need not wait for an engine that is not there")
	}
}
