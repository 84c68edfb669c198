package main

import (
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/jetstreamapi/source"
)

// originServers makes of the configuration what the streams need to reach other servers.
func originServers(list []config.Upstream) (out []source.Upstream) {
	for i := range list {
		u := &list[i]
		out = append(out, source.Upstream{
			Name: u.Name, API: u.API, RemoteAPI: u.RemoteAPI, Accounts: u.Accounts, URL: u.URL,
			Options: clientOptions(u),
		})
	}
	return out
}

// clientOptions are how to log in at an upstream. A file that cannot be read is an error of the connection: it may be
// there the next time.
func clientOptions(u *config.Upstream) (out []nats.Option) {
	if u.Credentials != "" {
		out = append(out, nats.UserCredentials(u.Credentials))
	}
	if u.Nkey != "" {
		out = append(out, func(o *nats.Options) error {
			login, err := nats.NkeyOptionFromSeed(u.Nkey)
			if err != nil {
				return err
			}
			return login(o)
		})
	}
	if u.User != "" {
		out = append(out, nats.UserInfo(u.User, u.Password))
	}
	if u.Token != "" {
		out = append(out, nats.Token(u.Token))
	}
	if u.CAFile != "" {
		out = append(out, nats.RootCAs(u.CAFile))
	}
	if u.CertFile != "" {
		out = append(out, nats.ClientCert(u.CertFile, u.KeyFile))
	}
	if u.InboxPrefix != "" {
		out = append(out, nats.CustomInboxPrefix(u.InboxPrefix))
	}
	return out
}
