package main

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// storeLimits returns what JetStream may store in all, in RAM and on disk. As in nats-server, what is not configured is
// three quarters of the memory, and of the disk that is free or that the data directory has already: else each restart
// would lower the limit by what was stored meanwhile.
func storeLimits(o *server.Options, dir string) (memory, disk int64) {
	memory, disk = o.JetStreamMaxMemory, o.JetStreamMaxStore
	if memory < 0 {
		memory = usableMemory() / 4 * 3
	}
	if disk < 0 {
		disk = (freeDisk(dir) + usedDisk(dir)) / 4 * 3
	}
	return memory, disk
}

// usableMemory is the least of what the machine has, the control group allows and GOMEMLIMIT says.
func usableMemory() int64 {
	least := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		least = min(least, int64(info.Totalram)*int64(info.Unit)) //nolint:gosec // bytes of a machine
	}
	least = min(least, groupMemory("/"))
	least = min(least, debug.SetMemoryLimit(-1))
	if least == math.MaxInt64 {
		return server.JetStreamMaxMemDefault
	}
	return least
}

// groupMemory is the least that the process's control group, or one that it is in, may use of memory. root is where the
// file system begins; "/", but in tests.
func groupMemory(root string) int64 {
	least := int64(math.MaxInt64)
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) //nolint:gosec // a file of the system
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path, where version 2 has no controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) //nolint:mnd // as said
		if len(parts) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "":
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be one of the host, which is not there: its own group is at the top.
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(root, base, dir, file)) //nolint:gosec // a file of the system
			n, parseErr := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err == nil && parseErr == nil && n > 0 {
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// limitMemory has the garbage collector keep to nine tenths of what the control group allows, unless GOMEMLIMIT says
// how much: the rest is for what it does not count.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := groupMemory("/"); n < noGroupLimit {
		debug.SetMemoryLimit(n / 10 * 9) //nolint:mnd // as said
	}
}

// noGroupLimit is where version 1 of control groups begins to mean that there is no limit.
const noGroupLimit = math.MaxInt64 / 2

// usedDisk is what the files below dir occupy. What cannot be looked at counts as nothing: it only lowers a default.
func usedDisk(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && d.Type().IsRegular() && unix.Lstat(path, &st) == nil {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes
}

// diskSpace is the free space and the size of the file system that dir is on; 0 if it cannot be told.
func diskSpace(dir string) (free, size uint64) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, 0
	}
	block := uint64(st.Bsize) //nolint:gosec // not negative
	return st.Bavail * block, st.Blocks * block
}

// freeDisk is the free space of the file system that dir is or will be on.
func freeDisk(dir string) int64 {
	var st unix.Statfs_t
	for {
		if err := unix.Statfs(dir, &st); err == nil {
			return int64(st.Bavail) * st.Bsize //nolint:gosec // bytes of a disk
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return server.JetStreamMaxStoreDefault
		}
		dir = parent
	}
}
