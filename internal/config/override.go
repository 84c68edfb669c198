package config

import (
	"errors"
	"flag"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// override lets the flags have the last word over what the file put into o, the options that the flags are bound to.
func (f *flags) override(o *server.Options) error {
	if err := f.set.Parse(f.args); err != nil {
		return err
	}
	only, err := f.alone()
	if err != nil {
		return err
	}
	f.set.Visit(func(fl *flag.Flag) {
		switch fl.Name {
		case "VV":
			o.Trace, o.TraceVerbose = only.Trace, only.TraceVerbose
		case "DV":
			o.Debug, o.Trace = only.Debug, only.Trace
		case "DVV":
			o.Debug, o.Trace, o.TraceVerbose = only.Debug, only.Trace, only.TraceVerbose
		case "cluster", "cluster_listen":
			o.Cluster.Host, o.Cluster.Port = only.Cluster.Host, only.Cluster.Port
			o.Cluster.Username, o.Cluster.Password = only.Cluster.Username, only.Cluster.Password
		case "routes":
			o.Routes = nil
			if o.RoutesStr != "" {
				o.Routes = server.RoutesFromStr(o.RoutesStr)
			}
		default:
			if strings.HasPrefix(fl.Name, "tls") {
				o.TLSConfig = only.TLSConfig
			}
		}
	})
	if o.RoutesStr != "" && o.Cluster.ListenStr == "" && o.Cluster.Host == "" && o.Cluster.Port == 0 {
		return errors.New("solicited routes require cluster capabilities, e.g. --cluster")
	}
	return nil
}

// alone returns what nats-server makes of the flags without any file. Some of them (-tls..., -cluster, -DV) have
// consequences that only nats-server's own code draws.
func (f *flags) alone() (*server.Options, error) {
	var args []string
	f.set.Visit(func(fl *flag.Flag) {
		switch fl.Name {
		case "c", "config", "t", "sl", "signal", "routes", "bus", "upstream", "allow_tmp_store":
		default:
			args = append(args, "-"+fl.Name+"="+fl.Value.String())
		}
	})
	nothing := func() {}
	set := flag.NewFlagSet("ehdb-gateway", flag.ContinueOnError)
	set.SetOutput(discard{})
	return server.ConfigureOptions(set, args, nothing, nothing, nothing)
}
