package subjects_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// The reference: the same questions answered on lists of tokens, as plainly as can be.

func refValid(filter string) bool {
	if strings.ContainsAny(filter, " \t\r\n\f") {
		return false
	}
	tokens := strings.Split(filter, ".")
	for i, t := range tokens {
		if t == "" || (t == ">" && i < len(tokens)-1) {
			return false
		}
	}
	return true
}

func refWildcard(filter string) bool {
	tokens := strings.Split(filter, ".")
	for i, t := range tokens {
		if t == "*" || (t == ">" && i == len(tokens)-1) {
			return true
		}
	}
	return false
}

func refMatch(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	if slices.Contains(s, "") {
		return false
	}
	if f[len(f)-1] == ">" {
		if len(s) < len(f) {
			return false
		}
		f = f[:len(f)-1]
		s = s[:len(f)]
	}
	if len(f) != len(s) {
		return false
	}
	for i := range f {
		if f[i] != "*" && f[i] != s[i] {
			return false
		}
	}
	return true
}

// alphabet is small, so that filters meet. The last token stands for all that no filter names.
var alphabet = []string{"a", "b", "other"}

// universe is every subject of up to n tokens of the alphabet: enough to tell apart filters of fewer tokens.
func universe(n int) []string {
	var all []string
	level := []string{""}
	for range n {
		var next []string
		for _, s := range level {
			for _, t := range alphabet {
				next = append(next, strings.TrimPrefix(s+"."+t, "."))
			}
		}
		all = append(all, next...)
		level = next
	}
	return all
}

func genSubject() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, 4), func(t []string) string {
		return strings.Join(t, ".")
	})
}

// genFilter makes valid filters of up to 3 tokens.
func genFilter() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 0, 2).Draw(t, "tokens")
		last := rapid.SampledFrom([]string{"a", "b", "*", ">"}).Draw(t, "last")
		return strings.Join(append(tokens, last), ".")
	})
}

// genText makes anything, with many of the characters that matter.
func genText() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.SampledFrom([]rune("ab.*> \t\n\r\f\x00é")), 0, 8, -1)
}
