package config

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// BusAccount is an entry of bus.accounts: how the gateway itself logs in to an account of the servers upstream, whose
// streams it copies. One way of logging in, or none.
type BusAccount struct {
	Name                  string // of the account here
	User, Password, Token string
	Creds                 string // path of a file with a user's JWT and its seed
	Nkey                  string // path of a file with a seed
}

// busAccounts reads bus.accounts, a block with a block for each account.
func (f field) busAccounts() (out []BusAccount) {
	m, ok := f.val.(map[string]any)
	if !ok {
		f.errorf("expected a block with one block for each account, got %v", f.val)
		return nil
	}
	for name, v := range m {
		tk, val := unwrap(v)
		out = append(out, field{d: f.d, tk: tk, path: f.path + "." + name, val: val}.busAccount(name))
	}
	slices.SortFunc(out, func(a, b BusAccount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (f field) busAccount(name string) BusAccount {
	a := BusAccount{Name: name}
	text := func(to *string) func(field) { return func(f field) { f.text(to) } }
	f.d.block(f.path, wrapped(f), map[string]func(field){
		"user": text(&a.User), "password": text(&a.Password), "token": text(&a.Token),
		"creds": func(f field) { f.file(&a.Creds) },
		"nkey":  func(f field) { f.file(&a.Nkey) },
	})
	ways := 0
	for _, way := range []string{a.User, a.Token, a.Creds, a.Nkey} {
		if way != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		f.errorf("one way to log in, please: user and password, token, creds or nkey")
	case a.User == "" && a.Password != "":
		f.errorf("a password without a user")
	}
	return a
}

// streamPatterns takes names of streams, in which * stands for any characters.
func (f field) streamPatterns() (out []string) {
	for _, e := range f.list() {
		var p string
		if e.text(&p); p == "" {
			continue
		}
		if _, err := path.Match(p, ""); err != nil || strings.ContainsAny(p, " .>/\\") {
			e.errorf("%q is no name of a stream, in which * stands for any characters", p)
			continue
		}
		out = append(out, p)
	}
	return out
}

// file takes the path of a file, which must be there.
func (f field) file(to *string) {
	f.text(to)
	if *to == "" {
		return
	}
	if _, err := os.Stat(*to); err != nil {
		f.errorf("%w", err)
	}
}

// copied returns the accounts whose streams are copied, as accounts with JetStream.
func (b *Bus) copied() map[string]AccountLimits {
	out := make(map[string]AccountLimits)
	for i := range b.Accounts {
		out[b.Accounts[i].Name] = noLimits()
	}
	if len(out) == 0 {
		out[server.DEFAULT_GLOBAL_ACCOUNT] = noLimits()
	}
	return out
}
