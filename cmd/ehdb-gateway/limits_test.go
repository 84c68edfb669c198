package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
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

// The least limit of the process's control group and those above it counts, in either version.
func TestMemoryOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "2000\n", "sys/fs/cgroup/a/memory.max": "max\n",
		}, 2000},
		"version 2, a group above": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "2000\n", "sys/fs/cgroup/a/memory.max": "1000\n",
		}, 1000},
		"in a container": {map[string]string{
			"proc/self/cgroup": "0::/../../host/path\n", "sys/fs/cgroup/memory.max": "3000\n",
		}, 3000},
		"version 1": {map[string]string{
			"proc/self/cgroup": "3:cpu:/x\n2:memory:/c\n", "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "4000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 4000},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
		"nothing":  {nil, math.MaxInt64},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupMemory(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A reload lets JetStream store more, as on a volume that has grown, and not less.
func TestReloadRaisesStorage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.conf")
	limits := func(memory, disk int) {
		t.Helper()
		text := fmt.Sprintf("jetstream { max_mem: %d, max_file: %d }\n", memory, disk)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limits(1000, 2000)
	p := start(t, "-sd", t.TempDir(), "-c", file)
	js, err := jetstream.New(p.connect())
	if err != nil {
		t.Fatal(err)
	}
	add := func() error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 3000})
		return err
	}
	if err := add(); err == nil {
		t.Fatal("a stream of 3000 bytes fits into 2000")
	}
	limits(1000, 4000)
	p.signal(syscall.SIGHUP)
	p.awaitLog("[INF] Reloaded server configuration")
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if _, _, body := get(t, p.http()+"/jsz"); !strings.Contains(body, `"max_storage": 4000`) {
		t.Errorf("jsz shows the old limit: %s", body)
	}
	limits(900, 4000)
	p.signal(syscall.SIGHUP)
	p.awaitLog("Failed to reload server configuration: config reload not supported for decreasing jetstream max memory and store")
	p.stop()
}
