package config

import (
	"os"
	"strings"
	"testing"
)

// A variable of the system before that means nothing here is named at the start, with what to use; and in the documentation.
func TestVariablesOfTheSystemBefore(t *testing.T) {
	page, err := os.ReadFile("../../docs/failures-replayed.md")
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := Load(nil, env("NATS_URL", "nats://a:4222", "NOETL_EHDB_FENCING", ""))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range Variables() {
		c, err := Load(nil, env(v.Name, "7"))
		if err != nil {
			t.Fatal(err)
		}
		want := v.Name + " in the environment is not used here: " + v.Instead
		if n := len(c.Warnings) - len(quiet.Warnings); n != 1 || !strings.Contains(strings.Join(c.Warnings, "\n"), want) {
			t.Errorf("%q, want one more: %q", c.Warnings, want)
		}
		if !strings.Contains(string(page), v.Name) {
			t.Errorf("docs/failures-replayed.md does not name %s", v.Name)
		}
		if i > 0 && v.Name <= Variables()[i-1].Name {
			t.Errorf("%s is out of order", v.Name)
		}
	}
}
