package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// ownDir is the folder below store_dir that is ours.
const ownDir = "ehdb"

// resolveDataDir settles DataDir and refuses directories that are not safe to use.
func (c *Config) resolveDataDir() error {
	if !c.Server.JetStream {
		return nil
	}
	store := c.Server.StoreDir
	if store == "" {
		store = filepath.Join(os.TempDir(), "nats")
	}
	abs, err := filepath.Abs(store)
	if err != nil {
		return fmt.Errorf("store_dir %s: %w", store, err)
	}
	if below(abs, os.TempDir()) {
		if !c.EHDB.AllowTmpStore {
			return fmt.Errorf("the store directory %s is below the system's temporary directory, where a clean-up may "+
				"delete it: name another one with -sd DIR (store_dir), or allow it with "+
				"ehdb { allow_tmp_store: true } or --allow_tmp_store", abs)
		}
		c.Warnings = append(c.Warnings, "Temporary storage directory used, data could be lost on system reboot")
	}
	if stream := foreignStream(abs); stream != "" {
		return fmt.Errorf("store_dir %s holds a nats-server's own data (%s), which this server does not read and will "+
			"not write beside. Ways over: `nats account backup` there and `nats account restore` here, or a cutover "+
			"with the nats-server still running; then move its folder jetstream away, or start with another store_dir",
			abs, stream)
	}
	c.Server.StoreDir, c.DataDir = abs, filepath.Join(abs, ownDir)
	return nil
}

// below reports whether dir is parent or inside it, with links resolved as far as dir exists.
func below(dir, parent string) bool {
	dir, parent = resolved(dir), resolved(parent)
	rel, err := filepath.Rel(parent, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// resolved follows the links of the part of path that exists.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

// foreignStream returns the directory of a stream that a nats-server keeps below store, or "".
func foreignStream(store string) string {
	for _, top := range []string{filepath.Join(store, server.JetStreamStoreDir), store} {
		for _, account := range subdirs(top) {
			for _, stream := range subdirs(filepath.Join(account, "streams")) {
				if _, err := os.Stat(filepath.Join(stream, server.JetStreamMetaFile)); err == nil {
					return stream
				}
			}
		}
	}
	return ""
}

// subdirs returns the directories in dir; none if it cannot be read: then it is no store of anybody.
func subdirs(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}
