package consumer

import (
	"fmt"
	"testing"
)

// TestFiltersAlikeAreOne: many filters with a wildcard cost what one does. Others stay what they are.
func TestFiltersAlikeAreOne(t *testing.T) {
	texts := []string{"a.b", "a.c", "b.>"}
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("a.*.%d", i))
	}
	set, err := compileFilters(texts)
	if err != nil || len(set) != 4 {
		t.Fatalf("%d filters, %v, want 4", len(set), err)
	}
	for subject, want := range map[string]bool{
		"a.b": true, "a.d": false, "b.x.y": true, "a.x.299": true, "a.x.300": false, "a.299": false, "a.x.y.1": false,
	} {
		if got := set.match([]byte(subject)); got != want {
			t.Errorf("%s is selected: %v, want %v", subject, got, want)
		}
	}
	if _, err := compileFilters([]string{"a.>", "a..b"}); err == nil {
		t.Error("a filter that is none is taken")
	}
}
