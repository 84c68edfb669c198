package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Facts are what a program is given: each is a variable of the environment, EHDB_ and its name in capitals, and a field
// of the JSON on standard input. What is not known yet is empty, 0 or false.
type Facts struct {
	Event           Event  `json:"event"`
	Server          string `json:"server"` // name of the gateway
	Scope           string `json:"scope"`  // account/stream
	Account         string `json:"account"`
	Stream          string `json:"stream"`
	Verb            string `json:"verb"` // flip, rollback, complete
	To              string `json:"to"`   // who is to have the say: ehdb or nats
	Epoch           uint64 `json:"epoch"`
	PlanDigest      string `json:"plan_digest"`
	By              string `json:"by"`
	Reason          string `json:"reason"`
	FenceMS         int64  `json:"fence_ms"` // before: the most it may take; after: what it took
	Emergency       bool   `json:"emergency"`
	NoReverseShadow bool   `json:"no_reverse_shadow"`
	Forced          string `json:"forced"` // gates that are done without, G11=reason
	PostponeFile    string `json:"postpone_file"`
	Until           string `json:"until"` // when a postponed flip is given up, RFC 3339
	Attempts        int    `json:"attempts"`
	LastSeq         uint64 `json:"last_seq"`
	Lost            uint64 `json:"lost"`
	Duplicates      int    `json:"duplicates"` // at most
	Error           string `json:"error"`      // of on-failure
}

// maxFact bounds one variable: the system bounds all of them.
const maxFact = 4 << 10

// encode returns the facts as JSON, and as variables.
func (f *Facts) encode() (doc []byte, env []string, err error) {
	if doc, err = json.Marshal(f); err != nil {
		return nil, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, nil, err
	}
	for name, v := range fields {
		text := strings.ReplaceAll(fmt.Sprint(v), "\x00", "")
		env = append(env, "EHDB_"+strings.ToUpper(name)+"="+text[:min(len(text), maxFact)])
	}
	return append(doc, '\n'), env, nil
}

// inherited are the variables of the gateway that programs get. The others may be secrets.
func inherited() (env []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
