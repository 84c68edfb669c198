package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

// Upstream is an entry of ehdb.upstreams: another server whose streams may be mirrored and sourced.
type Upstream struct {
	Name      string
	URL       string   // one or more, with commas between
	API       string   // the prefix by which streams name it, as external.api
	RemoteAPI string   // the prefix of the API at the other end
	Accounts  []string // of ours, whose streams may use it

	Credentials           string // file with a JWT and its seed
	Nkey                  string // file with a seed
	User, Password, Token string
	CAFile                string
	CertFile, KeyFile     string
	InboxPrefix           string // of the subjects it listens on at the other end
}

const ownAPI = "$JS.API"

// upstreams reads ehdb.upstreams, a block with a block for each of them.
func (d *decoder) upstreams(f field) (out []Upstream) {
	m, ok := f.val.(map[string]any)
	if !ok {
		f.errorf("expected a block with one block for each upstream, got %v", f.val)
		return nil
	}
	for name, v := range m {
		tk, val := unwrap(v)
		out = append(out, d.upstream(field{d: d, tk: tk, path: f.path + "." + name, val: val}, name))
	}
	slices.SortFunc(out, func(a, b Upstream) int { return strings.Compare(a.Name, b.Name) })
	for i := range out {
		for _, other := range out[:i] {
			shared := func(account string) bool { return slices.Contains(other.Accounts, account) }
			if out[i].API == other.API && slices.ContainsFunc(out[i].Accounts, shared) {
				f.errorf("%s and %s have the same api, %q", other.Name, out[i].Name, other.API)
			}
		}
	}
	return out
}

func (d *decoder) upstream(f field, name string) Upstream {
	u := Upstream{
		Name: name, API: "$JS." + name + ".API", RemoteAPI: ownAPI, Accounts: []string{server.DEFAULT_GLOBAL_ACCOUNT},
	}
	file := func(to *string) func(field) { return func(f field) { f.file(to) } }
	text := func(to *string) func(field) { return func(f field) { f.text(to) } }
	prefix := func(to *string) func(field) {
		return func(f field) {
			f.text(to)
			*to = strings.TrimSuffix(*to, ".")
			if !subjects.ValidFilter(*to) || subjects.HasWildcard([]byte(*to)) {
				f.errorf("%q is not a subject prefix", *to)
			}
		}
	}
	d.block(f.path, wrapped(f), map[string]func(field){
		"url": func(f field) {
			var list []string
			for _, at := range f.urls(checkHub) {
				list = append(list, at.String())
			}
			u.URL = strings.Join(list, ",")
		},
		"api":          prefix(&u.API),
		"remote_api":   prefix(&u.RemoteAPI),
		"accounts":     func(f field) { u.Accounts = f.texts() },
		"credentials":  file(&u.Credentials),
		"nkey":         file(&u.Nkey),
		"user":         text(&u.User),
		"password":     text(&u.Password),
		"token":        text(&u.Token),
		"ca_file":      file(&u.CAFile),
		"cert_file":    file(&u.CertFile),
		"key_file":     file(&u.KeyFile),
		"inbox_prefix": prefix(&u.InboxPrefix),
	})
	switch {
	case u.URL == "":
		f.errorf("needs a url, such as nats://hub:4222")
	case server.SubjectsCollide(u.API, ownAPI):
		f.errorf("api %q is this server's own", u.API)
	case (u.CertFile == "") != (u.KeyFile == ""):
		f.errorf("cert_file and key_file go together")
	}
	return u
}

// checkHub is an error when at is not the URL of a NATS server.
func checkHub(at *url.URL) error {
	if at.Hostname() == "" {
		return fmt.Errorf("%q is not a URL such as nats://hub:4222", at.Redacted())
	}
	return nil
}

// texts takes one string or a list of them.
func (f field) texts() (out []string) {
	for _, e := range f.list() {
		var s string
		if e.text(&s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
