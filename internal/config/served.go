package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// insecure lists the keys that, left aside, would let in whom they keep out or show what they hide. A file that sets
// one does not start. Patterns are paths of keys; * stands for an account's name or an element of a list.
var insecure = map[string]string{
	"tls.ocsp_peer": "OCSP is not served",
	"jetstream.tpm": "encryption at rest with a key from a TPM is not served",
}

// doors lists the blocks by which others than NATS clients come in. A file that has one does not start, since they
// would be shut out, unless ehdb.allow_standalone says that this is meant.
var doors = map[string]string{
	"gateway": "other clusters are", "leaf": "leaf nodes are", "leafnodes": "leaf nodes are", "mqtt": "MQTT is",
}

// notServed lists the keys that this build understands and does without; a start with them says so once.
var notServed = []string{
	"accounts.*.limits.max_leafnodes", "accounts.*.limits.max_leafs",
	"accounts.*.nkey",
	"cluster", "ocsp", "ocsp_cache",
	"default_js_domain", "feature_flags", "trace_verbose",
	"disable_sublist_cache", "no_sublist_cache",
	"jetstream.extension_hint", "jetstream.unique_tag", "jetstream.max_outstanding_catchup",
	"jetstream.max_buffered_size", "jetstream.max_buffered_msgs", "jetstream.info_queue_limit",
	"jetstream.max_concurrent_io",
	"jetstream.meta_compact", "jetstream.meta_compact_size", "jetstream.meta_compact_sync",
}

// checkServed refuses what would be unsafe to leave aside and warns of the rest that is not served.
func (c *Config) checkServed(file *parsedFile) error {
	w := walker{standalone: c.EHDB.AllowStandalone}
	w.walk(nil, file.root)
	if c.Server.AuthCallout != nil {
		w.errs = append(w.errs, calloutDefaults(file)...)
	}
	if err := joined(w.errs); err != nil {
		return err
	}
	if c.Server.TraceVerbose {
		w.aside = append(w.aside, "trace_verbose")
	}
	if len(w.aside) > 0 {
		c.Warnings = append(c.Warnings, "Not served by this build and left aside: "+listed(w.aside))
	}
	if err := foreignRoutes(c.Server); err != nil && !c.EHDB.AllowStandalone {
		return err
	}
	return nil
}

// calloutDefaults are errors for accounts with default_permissions, which users from auth_callout would not get.
func calloutDefaults(file *parsedFile) (errs []error) {
	_, raw := unwrap(file.root["accounts"])
	accounts, _ := raw.(map[string]any)
	for name, a := range accounts {
		if tk, _ := unwrap(table(a)["default_permissions"]); tk != nil {
			errs = append(errs, fmt.Errorf("%s: %q: this build does not apply them to users from auth_callout, and to "+
				"start without would not be safe: have the service name the permissions", where(tk),
				"accounts."+name+".default_permissions"))
		}
	}
	return errs
}

// walker goes through a parsed file looking for keys of the two tables.
type walker struct {
	standalone bool // as ehdb.allow_standalone
	errs       []error
	aside      []string
}

func (w *walker) walk(path []string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			w.key(append(slices.Clip(path), k), e)
		}
	case []any:
		for _, e := range v {
			_, e = unwrap(e)
			w.walk(append(slices.Clip(path), "*"), e)
		}
	}
}

func (w *walker) key(path []string, e any) {
	steps := make([]string, len(path))
	for i, name := range path {
		steps[i] = strings.ToLower(name)
	}
	if len(steps) > 1 && steps[0] == "accounts" {
		steps[1] = "*"
	}
	pattern := strings.Join(steps, ".")
	tk, val := unwrap(e)
	if off(val) {
		return
	}
	name := strings.Join(path, ".")
	why, bad := insecure[pattern]
	whose, door := doors[pattern]
	switch {
	case bad:
		w.refuse(tk, fmt.Errorf("%q: %s by this build, and to start without it would not be safe", name, why))
	case door && !w.standalone:
		w.refuse(tk, fmt.Errorf("%q: %s not served by this build, and who comes that way would be shut out. "+
			"Remove it, or set ehdb { allow_standalone: true } to start without", name, whose))
	case door || slices.Contains(notServed, pattern):
		w.aside = append(w.aside, name)
	default:
		w.walk(path, val)
	}
}

func (w *walker) refuse(at token, err error) {
	if at != nil {
		err = fmt.Errorf("%s: %w", where(at), err)
	}
	w.errs = append(w.errs, err)
}

// off tells values that ask for nothing.
func off(v any) bool {
	switch v := v.(type) {
	case bool:
		return !v
	case int64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// foreignRoutes is an error when o names routes to other servers.
func foreignRoutes(o *server.Options) error {
	var foreign []string
	for _, r := range o.Routes {
		if !ownRoute(o, r) {
			foreign = append(foreign, r.Host)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("cluster.routes names other servers (%s), and this build does not replicate: every one of them "+
		"would keep streams of its own. Start a single server, or set ehdb { allow_standalone: true } if that is meant",
		listed(foreign))
}

// ownRoute tells a server's route to itself.
func ownRoute(o *server.Options, r *url.URL) bool {
	port := r.Port()
	if port == "" {
		port = strconv.Itoa(server.DEFAULT_PORT)
	}
	host := r.Hostname()
	ip := net.ParseIP(host)
	local := host == "localhost" || host == o.Cluster.Host || ip != nil && ip.IsLoopback()
	return local && port == strconv.Itoa(o.Cluster.Port)
}
