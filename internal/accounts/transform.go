package accounts

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/subjects"
)

var wildcardFunction = regexp.MustCompile(`^\{\{\s*[wW]ildcard\s*\(\s*(\d+)\s*\)\s*\}\}$`)

// placeholder reads a token that stands for a wildcard, counted from 1.
func placeholder(token string) (n int, ok bool) {
	text := ""
	if len(token) > 1 && token[0] == '$' && token[1] >= '1' && token[1] <= '9' {
		text = token[1:]
	} else if m := wildcardFunction.FindStringSubmatch(token); m != nil {
		text = m[1]
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0
}

// numbered writes the wildcards of a filter as placeholders: a.*.* becomes a.$1.$2.
func numbered(filter string) string {
	tokens, n := strings.Split(filter, "."), 0
	for i, t := range tokens {
		if t == "*" {
			n++
			tokens[i] = "$" + strconv.Itoa(n)
		}
	}
	return strings.Join(tokens, ".")
}

// forward turns subjects that match from into to.
func forward(from, to string) (func(string) string, error) {
	tr, err := server.NewSubjectTransformStrict(from, numbered(to))
	if err != nil {
		return nil, fmt.Errorf("mapping from %q to %q: %w", from, to, err)
	}
	return tr.TransformSubject, nil
}

// backward turns subjects that look like to, whose placeholders are the wildcards of from, into from.
func backward(from, to string) (func(string) string, error) {
	plain, order := placeholders(to)
	tokens, n := strings.Split(from, "."), 0
	for i, t := range tokens {
		if t != "*" {
			continue
		}
		n++
		at := slices.Index(order, n)
		if at < 0 {
			return nil, fmt.Errorf("mapping from %q to %q: wildcard %d is not in it", from, to, n)
		}
		tokens[i] = "$" + strconv.Itoa(at+1)
	}
	return forward(plain, strings.Join(tokens, "."))
}

// crossing is how subjects on the two sides of an import become each other. The functions are nil where there is
// nothing to do: local is remote, or a literal on the side where subjects arrive.
type crossing struct {
	local   string // the filter here, without placeholders
	in, out func(string) string
}

func cross(remote, local string) (c crossing, err error) {
	c.local = pattern(local)
	if !subjects.HasWildcard(remote) || local == remote {
		return c, nil
	}
	if c.in, err = forward(remote, local); err != nil {
		return c, err
	}
	c.out, err = backward(remote, local)
	return c, err
}
