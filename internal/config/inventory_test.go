package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// TestInventory gives the lines of testdata/inventory to nats-server and to Load: flags and a configuration each. Both must
// take the same, and refuse the rest with the same words.
func TestInventory(t *testing.T) {
	paths, err := filepath.Glob("testdata/inventory/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no lists", err)
	}
	names := inventoryNames(t)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					inventoryLine(t, names, line)
				}
			}
		})
	}
}

// inventoryNames are what stands for files and keys in the lists.
func inventoryNames(t *testing.T) *strings.Replacer {
	t.Helper()
	cert, key := certificate(t)
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		kp, err := create()
		if err != nil {
			t.Fatal(err)
		}
		public, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return kp, public
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	_, account := pair(nkeys.CreateAccount)
	_, user := pair(nkeys.CreateUser)
	_, proxy := pair(nkeys.CreateServer)
	_, curve := pair(nkeys.CreateCurveKeys)
	token, err := jwt.NewOperatorClaims(operatorKey).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	accountToken, err := jwt.NewAccountClaims(account).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("%CERT", cert, "%KEY", key, "%DIR", t.TempDir(), "%ACCOUNTJWT", accountToken, "%ACCOUNT", account,
		"%USER", user, "%PROXY", proxy, "%XKEY", curve, "%OPERATORJWT", token, "%OPERATOR", operatorKey, "%NOTHING", "/does/not/exist",
		"%GARBAGE", write(t, "garbage"), "%INCLUDED", write(t, "port: 4333\n"), `\n`, "\n")
}

// unordered is what is not compared: what depends on the order of a map (columns where one of two keys is too many, and
// addresses; which block came first), and that ours says which file it could not read.
var unordered = regexp.MustCompile(`:\d+: |0x[0-9a-f]+|configuration file \S+: |and (a users array|accounts)$`)

// inventoryLine plays one line: [!"words of ours" ][flags | ]configuration.
func inventoryLine(t *testing.T, names *strings.Replacer, line string) {
	t.Helper()
	text, ours := line, ""
	if rest, differs := strings.CutPrefix(line, `!"`); differs {
		ours, text, _ = strings.Cut(rest, `" `)
	}
	args, text, both := strings.Cut(text, "| ")
	if !both {
		args, text = "", args
	}
	file := write(t, names.Replace(text)+"\n")
	flags := strings.Fields(names.Replace(args))
	if text != "-" {
		flags = append(flags, "-c", file)
	}
	_, err := Load(append([]string{"--allow_tmp_store"}, flags...), noEnv)
	want, got := unordered.ReplaceAllString(theirAnswer(flags), ""), unordered.ReplaceAllString(answer(err), "")
	switch {
	case ours != "" && strings.Contains(got, ours) && !strings.Contains(want, ours):
	case ours == "" && want == got:
	default:
		t.Errorf("%.300s\n\tnats-server: %s\n\tgateway:     %s", line, want, got)
	}
	if testing.Verbose() {
		t.Logf("%.200s => %.300s", line, want)
	}
}

// theirAnswer is what nats-server says to args before it listens.
func theirAnswer(args []string) (out string) {
	defer func() {
		if p := recover(); p != nil {
			out = fmt.Sprint("panic: ", p)
		}
	}()
	nothing := func() {}
	set := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	set.SetOutput(discard{})
	o, err := server.ConfigureOptions(set, args, nothing, nothing, nothing)
	defer func() {
		if o != nil && o.AccountResolver != nil {
			o.AccountResolver.Close()
		}
	}()
	if err == nil {
		o.NoLog, o.NoSigs = true, true
		var s *server.Server
		if s, err = server.NewServer(o); err == nil {
			s.Shutdown()
		}
	}
	return answer(err)
}

// answer is an error's text with its lines in order, which are those of a map.
func answer(err error) string {
	if err == nil {
		return "taken"
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(err.Error()), "\n"), func(line string) bool {
		return strings.Contains(line, "invalid use of field") // a warning, which nats-server puts among the errors
	})
	slices.Sort(lines)
	return fmt.Sprint(strings.Join(lines, "\n\t\t"))
}
