package gateway

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestCloseReasonsAreAll: a reason that is not in the list would have no series until it happens.
func TestCloseReasonsAreAll(t *testing.T) {
	src, err := os.ReadFile("texts.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`CloseReason = "([^"]+)"`).FindAllSubmatch(src, -1)
	if len(all) != len(CloseReasons) {
		t.Errorf("%d reasons, %d in the list", len(all), len(CloseReasons))
	}
	for _, m := range all {
		if !slices.Contains(CloseReasons, CloseReason(m[1])) {
			t.Errorf("%s is not in the list", m[1])
		}
	}
}
