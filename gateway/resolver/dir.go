package resolver

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Kind is how a directory of claims is used.
type Kind string

// The kinds.
const (
	// Full has the claims of all accounts.
	Full Kind = "full"
	// Cache has those that were asked for lately. Where there is one server it can only hold what was put there.
	Cache Kind = "cache"
)

// DirConfig says where claims are kept and how.
type DirConfig struct {
	Kind   Kind
	Path   string
	Limit  int64         // number of accounts; 0: nats-server's default
	TTL    time.Duration // of a cache; 0: as long as the claims
	Delete bool          // claims may be deleted
	Hard   bool          // deleted claims leave no file behind
}

// defaultCacheLimit is nats-server's.
const defaultCacheLimit = 1000

// Dir is a directory with the claims of accounts, a file each, as nats-server's directory resolvers keep them.
type Dir struct {
	*server.DirJWTStore
	config DirConfig
}

// OpenDir opens a directory, which is made if it does not exist. changed is called when the claims of an account are
// other than they were.
func OpenDir(c DirConfig, changed func(account string)) (*Dir, error) {
	limit, mode := c.Limit, server.NoDelete
	switch {
	case c.Kind == Cache:
		mode = server.HardDelete
		if limit == 0 {
			limit = defaultCacheLimit
		}
	case c.Delete && c.Hard:
		mode = server.HardDelete
	case c.Delete:
		mode = server.RenameDeleted
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	store, err := server.NewExpiringDirJWTStore(c.Path, false, true, mode, 0, limit, c.Kind == Cache, c.TTL, changed)
	if err != nil {
		return nil, fmt.Errorf("resolver directory: %w", err)
	}
	return &Dir{store, c}, nil
}

// Fetch implements auth.AccountSource.
func (d *Dir) Fetch(account string) (string, error) {
	token, err := d.LoadAcc(account)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fs.ErrNotExist
	}
	return token, err
}

// errNoDelete refuses to delete what may only be added to.
var errNoDelete = errors.New("delete must be enabled in server config")

// mayDelete reports whether accounts may be deleted; a cache always may forget.
func (d *Dir) mayDelete() bool { return d.config.Delete || d.config.Kind == Cache }

// remove deletes the claims of an account, which must be a valid public key.
func (d *Dir) remove(account string) error {
	if !d.mayDelete() {
		return errNoDelete
	}
	name := filepath.Join(d.config.Path, account+".jwt")
	var err error
	if d.config.Hard || d.config.Kind == Cache {
		err = os.Remove(name)
	} else {
		err = os.Rename(name, name+".deleted")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, d.Reload())
}
