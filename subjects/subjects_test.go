package subjects_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/subjects"
)

func TestValid(t *testing.T) {
	for _, c := range []struct {
		text                               string
		filter, literal, publish, wildcard bool
	}{
		{"", false, false, false, false},
		{"a", true, true, true, false},
		{"a.b.c", true, true, true, false},
		{".", false, false, false, false},
		{".a", false, false, false, false},
		{"a.", false, false, false, false},
		{"a..b", false, false, false, false},
		{"*", true, false, true, true},
		{">", true, false, true, true},
		{"a.*.c", true, false, true, true},
		{"a.>", true, false, true, true},
		{">.a", false, false, true, false},
		{"a.>.b", false, false, true, false},
		{"a*.>b.c>", true, true, true, false}, // wildcards stand alone or are letters
		{"a b", false, false, false, false},
		{"a.\t", false, false, false, false},
		{"$JS.API.INFO", true, true, true, false},
		{"ünï.cøde", true, true, true, false},
	} {
		check(t, c.text, "ValidFilter", subjects.ValidFilter(c.text), c.filter)
		check(t, c.text, "ValidFilter of bytes", subjects.ValidFilter([]byte(c.text)), c.filter)
		check(t, c.text, "ValidLiteral", subjects.ValidLiteral(c.text), c.literal)
		check(t, c.text, "ValidPublish", subjects.ValidPublish(c.text), c.publish)
		check(t, c.text, "HasWildcard", subjects.HasWildcard(c.text), c.wildcard)
	}
}

func check(t *testing.T, text, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s(%q) = %v, want %v", what, text, got, want)
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		text   string
		tokens []string
	}{{"", nil}, {"a", []string{"a"}}, {"ab.c.>", []string{"ab", "c", ">"}}, {"a..b.", []string{"a", "", "b", ""}}} {
		if n := subjects.NumTokens(c.text); n != len(c.tokens) {
			t.Errorf("NumTokens(%q) = %d", c.text, n)
		}
		for i, want := range c.tokens {
			if got := subjects.Token([]byte(c.text), i); string(got) != want {
				t.Errorf("Token(%q, %d) = %q, want %q", c.text, i, got, want)
			}
		}
		for _, i := range []int{-1, len(c.tokens), len(c.tokens) + 3} {
			if got := subjects.Token(c.text, i); got != "" {
				t.Errorf("Token(%q, %d) = %q, want none", c.text, i, got)
			}
		}
	}
	for text, want := range map[string]bool{"a": true, "": false, "*": false, ">": false, "a.b": false, "a b": false, "*a": true} {
		check(t, text, "ValidToken", subjects.ValidToken(text), want)
	}
}

func TestMatchAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filter := genFilter().Draw(t, "filter")
		subject := rapid.OneOf(genSubject(), genText()).Draw(t, "subject")
		want := refMatch(filter, subject)
		if got := subjects.Match(filter, []byte(subject)); got != want {
			t.Fatalf("Match(%q, %q) = %v", filter, subject, got)
		}
		f, err := subjects.Compile(filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match([]byte(subject)); got != want {
			t.Fatalf("Compile(%q).Match(%q) = %v", filter, subject, got)
		}
		if want && !strings.HasPrefix(subject, string(f.Prefix())) {
			t.Fatalf("%q selects %q, which has not the prefix %q", filter, subject, f.Prefix())
		}
		if f.Literal() != !subjects.HasWildcard(filter) || f.String() != filter {
			t.Fatalf("Compile(%q) says %v, %q", filter, f.Literal(), f)
		}
	})
}

// TestRelationsAgreeWithSets holds Overlap and SubsetOf against the sets of subjects themselves.
func TestRelationsAgreeWithSets(t *testing.T) {
	all := universe(4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := genFilter().Draw(t, "a"), genFilter().Draw(t, "b")
		overlap, subset := false, true
		for _, s := range all {
			x, y := refMatch(a, s), refMatch(b, s)
			overlap = overlap || (x && y)
			subset = subset && (!x || y)
		}
		if got := subjects.Overlap(a, b); got != overlap {
			t.Fatalf("Overlap(%q, %q) = %v", a, b, got)
		}
		if got := subjects.SubsetOf(a, b); got != subset {
			t.Fatalf("SubsetOf(%q, %q) = %v", a, b, got)
		}
	})
}

// TestAgreesWithNATS asks nats-server what it exports.
func TestAgreesWithNATS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(genText(), genFilter()).Draw(t, "text")
		if got, want := subjects.ValidFilter(text), server.IsValidSubject(text); got != want {
			t.Fatalf("ValidFilter(%q) = %v, nats-server says %v", text, got, want)
		}
		if got, want := subjects.ValidLiteral(text), server.IsValidPublishSubject(text); got != want {
			t.Fatalf("ValidLiteral(%q) = %v, nats-server says %v", text, got, want)
		}
		a, b := genFilter().Draw(t, "a"), genFilter().Draw(t, "b")
		if got, want := subjects.Overlap(a, b), server.SubjectsCollide(a, b); got != want {
			t.Fatalf("Overlap(%q, %q) = %v, nats-server says %v", a, b, got, want)
		}
		if got, want := subjects.SubsetOf(a, b), server.SubjectMatchesFilter(a, b); got != want {
			t.Fatalf("SubsetOf(%q, %q) = %v, nats-server says %v", a, b, got, want)
		}
	})
}

func TestCompileRefusesWhatIsNoFilter(t *testing.T) {
	if _, err := subjects.Compile("a..b"); err == nil || !strings.Contains(err.Error(), `"a..b"`) {
		t.Errorf("error %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	subject := []byte("orders.europe.north.customer-4711.order-0815.created.with.a.long.tail")
	filter, err := subjects.Compile("orders.*.north.>")
	if err != nil {
		t.Fatal(err)
	}
	var index subjects.Index[int]
	for i, f := range []string{"orders.>", "orders.*.north.>", "*.europe.>"} {
		if _, err := index.Insert(f, i); err != nil {
			t.Fatal(err)
		}
	}
	shards, err := subjects.NewShardMap(8, []subjects.ShardRule{
		{Filter: "orders.>", Shards: []int{1, 2, 3}, Tokens: []int{2, 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]int, 0, 8)
	for what, call := range map[string]func(){
		"ValidFilter":      func() { subjects.ValidFilter(subject) },
		"Match":            func() { subjects.Match("orders.>", subject) },
		"Token":            func() { subjects.Token(subject, 3) },
		"Filter.Match":     func() { filter.Match(subject) },
		"AppendMatch":      func() { dst = index.AppendMatch(dst[:0], subject) },
		"HasMatch":         func() { index.HasMatch(subject) },
		"Index.Match":      func() { index.Match(subject, func(int) bool { return true }) },
		"Shard":            func() { shards.Shard("A", "S", subject) },
		"Shard by default": func() { shards.Shard("A", "S", []byte("x")) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{{"a.*.c", "a.b.c"}, {"a.>", "a"}, {">", "a..b"}, {"", ""}, {"*", "."}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, filter, subject string) {
		valid := refValid(filter)
		if got := subjects.ValidFilter(filter); got != valid {
			t.Fatalf("ValidFilter(%q) = %v", filter, got)
		}
		if got := subjects.HasWildcard(filter); got != refWildcard(filter) {
			t.Fatalf("HasWildcard(%q) = %v", filter, got)
		}
		got := subjects.Match(filter, subject) // must not fail on anything
		c, err := subjects.Compile(filter)
		if (err == nil) != valid {
			t.Fatalf("Compile(%q): %v", filter, err)
		}
		if !valid {
			return
		}
		want := refMatch(filter, subject)
		if got != want || c.Match([]byte(subject)) != want {
			t.Fatalf("Match(%q, %q) = %v, compiled %v, want %v", filter, subject, got, c.Match([]byte(subject)), want)
		}
		var x subjects.Index[int]
		if _, err := x.Insert(filter, 1); err != nil {
			t.Fatal(err)
		}
		if x.HasMatch([]byte(subject)) != want {
			t.Fatalf("Index with %q: HasMatch(%q) = %v", filter, subject, !want)
		}
		if subjects.ValidFilter(subject) {
			overlap := subjects.Overlap(filter, subject)
			if overlap != subjects.Overlap(subject, filter) {
				t.Fatalf("Overlap(%q, %q) depends on the order", filter, subject)
			}
			if subjects.SubsetOf(filter, subject) && !overlap {
				t.Fatalf("%q is within %q and does not overlap it", filter, subject)
			}
			if subjects.ValidLiteral(subject) && subjects.SubsetOf(subject, filter) != want {
				t.Fatalf("SubsetOf(%q, %q) is not Match", subject, filter)
			}
		}
	})
}
