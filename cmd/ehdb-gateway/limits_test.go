package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// What is stored already must not lower the limit of the next start.
func TestStoreLimitCountsWhatIsStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if got := usedDisk(dir); got != 0 {
		t.Fatalf("a missing directory uses %d bytes", got)
	}
	if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	const size = 32 << 20
	if err := os.WriteFile(filepath.Join(dir, "wal", "segment"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := usedDisk(dir); got < size {
		t.Errorf("%d bytes are counted of a file of %d", got, size)
	}
	if _, disk := storeLimits(&server.Options{JetStreamMaxStore: -1, JetStreamMaxMemory: 1}, dir); disk < size/4*3 {
		t.Errorf("the limit is %d", disk)
	}
	if _, disk := storeLimits(&server.Options{JetStreamMaxStore: 7, JetStreamMaxMemory: 1}, dir); disk != 7 {
		t.Errorf("a configured limit became %d", disk)
	}
}
