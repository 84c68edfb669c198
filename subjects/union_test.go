package subjects

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestUnionIsItsFilters compares a union with its filters, one after the other.
func TestUnionIsItsFilters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.SampledFrom([]string{"a", "b", "cc", "*"})
		var filters []*Filter
		for range rapid.IntRange(1, 6).Draw(t, "filters") {
			rest := rapid.SliceOfN(token, 0, 3).Draw(t, "rest")
			text := "p.*." + strings.Join(append(rest, rapid.SampledFrom([]string{"a", "*", ">"}).Draw(t, "end")), ".")
			f, err := Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			filters = append(filters, f)
		}
		u, err := NewUnion(filters)
		if err != nil || string(u.Prefix()) != "p." || u.Literal() {
			t.Fatalf("union of %v: prefix %q, %v", filters, u.Prefix(), err)
		}
		for range 20 {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "cc", "p", ""}), 1, 5).Draw(t, "subject")
			subject := []byte(strings.Join(append([]string{"p"}, parts...), "."))
			want := false
			for _, f := range filters {
				want = want || f.Match(subject)
			}
			if got := u.Match(subject); got != want {
				t.Fatalf("union of %v on %q is %v, want %v", filters, subject, got, want)
			}
		}
	})
}
