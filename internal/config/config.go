package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/accounts"
)

// Action is what the command line asks for.
type Action int

// What the command line can ask for.
const (
	Run Action = iota
	ShowVersion
	ShowHelp
	ShowTLSHelp
	CheckFile  // -t: the configuration file is valid, say so and exit
	SendSignal // -sl
)

// Config is everything the gateway is started with.
type Config struct {
	Action Action
	Signal string // of SendSignal: "<name>" or "<name>=<pid or pid file>"

	// Server holds what nats-server's flags and keys say, with nats-server's defaults filled in. Ports keep -1 for "any
	// free port".
	Server *server.Options
	EHDB   EHDB
	Bus    Bus

	// Resolver and PinnedAccounts are of operator mode: where the claims of accounts are, and the only accounts that
	// may be used, if not all may.
	Resolver       Resolver
	PinnedAccounts []string

	// Limits are what accounts of the file grant their connections, by name.
	Limits map[string]ConnLimits

	// JetStreamAccounts are the accounts with JetStream, by name. Empty when JetStream is off, and in operator
	// mode, where the claims of accounts say it.
	JetStreamAccounts map[string]AccountLimits
	// Accounts are what the accounts of the file offer each other and how they rename subjects.
	Accounts []*accounts.Account
	// DataDir is where the log lives, below store_dir. Empty when JetStream is off.
	DataDir string

	// Warnings are for the log, one line each.
	Warnings []string
}

// Load reads args (without the program's name), the file they name and the environment. An error is for the person who
// starts the server: it names the key and, where there is one, file:line:column.
func Load(args []string, lookupEnv func(string) (string, bool)) (*Config, error) {
	f, err := parseFlags(args)
	if err != nil {
		return nil, err
	}
	c := &Config{Action: f.action, Signal: f.signal, Server: f.opts}
	if c.Action != Run && c.Action != CheckFile {
		return c, nil
	}
	if err := c.settle(f, lookupEnv); err != nil {
		if r := f.opts.AccountResolver; r != nil {
			r.Close() // it may look after a directory by now
		}
		return nil, err
	}
	return c, nil
}

// settle reads the file that f names and makes one configuration of all that there is.
func (c *Config) settle(f *flags, lookupEnv func(string) (string, bool)) error {
	file, err := readFile(f.file, c.Server)
	if err != nil {
		return err
	}
	if c.Action == CheckFile && len(file.warnings) > 0 {
		return errors.New(strings.Join(file.warnings, "\n")) // as nats-server does: who checks wants to hear of it
	}
	c.Warnings = append(c.Warnings, file.warnings...)
	c.unused(lookupEnv)
	c.Accounts = accountLinks(file)
	if err := mapped(c.Accounts); err != nil {
		return err
	}
	if err := f.override(c.Server); err != nil {
		return err
	}
	if err := c.readOwnBlocks(file, f, lookupEnv); err != nil {
		return err
	}
	c.readResolver(file)
	c.Limits = connLimits(file)
	if err := c.checkServed(file); err != nil {
		return err
	}
	if c.Server, err = validated(c.Server); err != nil {
		return err
	}
	if c.EHDB.Feed != nil && c.Server.HTTPPort == 0 && c.Server.HTTPSPort == 0 {
		return errFeedPort
	}
	if c.Bus.Cutover {
		c.JetStreamAccounts = c.Bus.copied()
	} else if c.OperatorMode() {
		c.JetStreamAccounts = map[string]AccountLimits{}
	} else if c.JetStreamAccounts, err = jetStreamAccounts(file, c.Server); err != nil {
		return err
	}
	return c.resolveDataDir()
}

// readOwnBlocks reads ehdb {} and bus {} and lets flags and environment have the last word.
func (c *Config) readOwnBlocks(file *parsedFile, f *flags, lookupEnv func(string) (string, bool)) error {
	d := &decoder{}
	c.EHDB = d.ehdb(file.root["ehdb"])
	c.Bus = d.bus(file.root["bus"])
	if err := d.err(); err != nil {
		return err
	}
	if f.allowTmpStore {
		c.EHDB.AllowTmpStore = true
	}
	if err := c.Bus.settle(f, lookupEnv); err != nil {
		return err
	}
	return c.settleBus()
}

// validated returns o with nats-server's defaults, after nats-server's own checks of what the options say together. The
// server made for it is never started.
func validated(o *server.Options) (*server.Options, error) {
	if o.MaxClosedClients < 0 {
		return nil, fmt.Errorf("max_closed_clients: %d is less than 0", o.MaxClosedClients)
	}
	full := o.Clone()
	full.NoLog, full.NoSigs = true, true
	s, err := server.NewServer(full)
	if err != nil {
		return nil, err
	}
	s.Shutdown()
	full.NoLog, full.NoSigs = o.NoLog, o.NoSigs
	full.Port, full.ServerName = o.Port, o.ServerName
	if full.Port == 0 {
		full.Port = server.DEFAULT_PORT
	}
	return full, nil
}

// listed joins names for a message, sorted and without doubles.
func listed(names []string) string {
	sort.Strings(names)
	out := names[:0]
	for i, n := range names {
		if i == 0 || n != names[i-1] {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

// flags is what the command line says.
type flags struct {
	set           *flag.FlagSet
	args          []string
	opts          *server.Options // bound to set: parsing again overwrites what the file said
	action        Action
	file          string
	signal        string
	bus           string
	upstream      string
	allowTmpStore bool
}

// errNoFile is nats-server's answer to -t without -c.
var errNoFile = fmt.Errorf("must specify [-c, --config] option to check configuration file syntax")

func parseFlags(args []string) (*flags, error) {
	f := &flags{set: flag.NewFlagSet("ehdb-gateway", flag.ContinueOnError), args: args}
	f.set.Usage = func() {}
	f.set.SetOutput(discard{})
	nothing := func() {}
	// Without arguments ConfigureOptions only declares the flags and binds them to the options it returns.
	opts, err := server.ConfigureOptions(f.set, nil, nothing, nothing, nothing)
	if err != nil {
		return nil, err
	}
	f.opts = opts
	f.set.StringVar(&f.bus, "bus", "", "Which bus serves: ehdb or nats.")
	f.set.StringVar(&f.upstream, "upstream", "", "URLs of the NATS servers behind the gateway.")
	f.set.BoolVar(&f.allowTmpStore, "allow_tmp_store", false, "Allow a store directory under the temporary directory.")
	if err := f.set.Parse(args); err != nil {
		return nil, err
	}
	version, help, err := server.ProcessCommandLineArgs(f.set)
	if err != nil {
		return nil, err
	}
	f.file, f.signal = f.value("config"), f.value("signal")
	switch {
	case version || f.isTrue("version"):
		f.action = ShowVersion
	case help || f.isTrue("help"):
		f.action = ShowHelp
	case f.isTrue("help_tls"):
		f.action = ShowTLSHelp
	case f.signal != "":
		f.action = SendSignal
	case f.isTrue("t"):
		f.action = CheckFile
		if f.file == "" {
			return nil, errNoFile
		}
	}
	return f, nil
}

func (f *flags) value(name string) string { return f.set.Lookup(name).Value.String() }
func (f *flags) isTrue(name string) bool  { return f.value(name) == "true" }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Environ is the lookupEnv of a real process.
func Environ(name string) (string, bool) { return os.LookupEnv(name) }
