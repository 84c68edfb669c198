package config

import (
	"fmt"
	"strings"
)

// Mode says which bus serves the clients.
type Mode string

// The modes.
const (
	ModeEHDB   Mode = "ehdb"   // this server's own streams
	ModeNATS   Mode = "nats"   // the NATS servers behind the gateway
	ModeShadow Mode = "shadow" // the NATS servers behind it, with a copy here
)

// The environment's names for the mode: ours, and the one that operators of command buses already use.
var modeVariables = []string{"EHDB_BUS", "NOETL_COMMAND_BUS"}

// chooseMode settles the mode: the flag, else the environment, else the file, else unsaid. Variables that contradict
// each other are an error: an operator who rolls back with one of them must not be overruled by a forgotten other.
func chooseMode(flagged string, lookupEnv func(string) (string, bool), file, unsaid Mode) (Mode, error) {
	mode, source := unsaid, ""
	if file != "" {
		mode, source = file, "bus.mode in the configuration file"
	}
	var fromEnv string
	for _, name := range modeVariables {
		v, ok := lookupEnv(name)
		v = strings.ToLower(strings.TrimSpace(v))
		switch {
		case !ok || v == "":
			continue
		case fromEnv != "" && Mode(v) != mode:
			return "", fmt.Errorf("%s=%s and %s=%s contradict each other: unset one", fromEnv, mode, name, v)
		}
		mode, fromEnv, source = Mode(v), name, name+" in the environment"
	}
	if flagged != "" {
		mode, source = Mode(strings.ToLower(flagged)), "the flag --bus"
	}
	switch mode {
	case ModeEHDB, ModeNATS, ModeShadow:
		return mode, nil
	default:
		return "", fmt.Errorf("bus mode %q (from %s) is not one of ehdb, nats, shadow", mode, source)
	}
}
