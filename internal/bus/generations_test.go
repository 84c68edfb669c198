package bus

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/subjects"
)

// TestChangesThatMatterInvalidate: a change of any filter that selects a subject ends what is known of the subject.
func TestChangesThatMatterInvalidate(t *testing.T) {
	token := rapid.SampledFrom([]string{"a", "b", "*", ">", "c"})
	rapid.Check(t, func(t *rapid.T) {
		filter := strings.Join(rapid.SliceOfN(token, 1, 4).Draw(t, "filter"), ".")
		subject := strings.Join(rapid.SliceOfN(token, 1, 4).Draw(t, "subject"), ".")
		if !subjects.ValidFilter(filter) || !subjects.Match(filter, subject) {
			return
		}
		g := generations{seed: maphash.MakeSeed()}
		s := g.stamp(subject)
		if !s.valid() {
			t.Fatal("invalid without a change")
		}
		g.bump(filter)
		if s.valid() {
			t.Fatalf("a change of %q does not end what is known of %q", filter, subject)
		}
	})
}

func TestOtherChangesDoNot(t *testing.T) {
	g := generations{seed: maphash.MakeSeed()}
	hit := 0
	for i := range 1000 {
		s := g.stamp("orders.eu.new")
		for _, f := range []string{"_INBOX.%d", "orders.x%d.new", "other%d.>"} {
			g.bump(fmt.Sprintf(f, i))
		}
		if !s.valid() {
			hit++
		}
	}
	if hit > 60 { // 6 of 512 slots are expected to meet
		t.Errorf("%d of 1000 unrelated changes ended it", hit)
	}
}
