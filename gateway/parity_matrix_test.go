package gateway

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Each of these as what is allowed, with each as what is denied: what a client may publish, subscribe to and be sent.
var (
	matrixPermissions = []string{"", "a", "a.b", "a.*", "a.>", "*.b", "*", ">", "a.*.c", "a q", "a.* q", "a.> q.*", "> q.>", "b"}
	matrixSubjects    = []string{"a", "b", "a.b", "a.c", "b.b", "a.b.c", "a.b.d", "a.x.c"}
	matrixFilters     = []string{"a.*", "a.>", "*.b", "*", ">", "a.*.c", "*.*", "b.>"}
	matrixQueues      = []string{"q", "q.a", "r"}
)

// TestPermissionMatrix: every pair of permissions has the effect it has in nats-server.
func TestPermissionMatrix(t *testing.T) {
	var users []string
	var conf strings.Builder
	list := func(key, subject string) string {
		if subject == "" {
			return ""
		}
		return fmt.Sprintf("%s: %q, ", key, subject)
	}
	for i, allow := range matrixPermissions {
		for j, deny := range matrixPermissions {
			user := fmt.Sprintf("u%dx%d-", i, j)
			users = append(users, user)
			fmt.Fprintf(&conf, "{user: %q, password: x, permissions: {subscribe: {%s%s}", user, list("allow", allow), list("deny", deny))
			if !strings.Contains(allow+deny, " ") { // those are about queue groups
				fmt.Fprintf(&conf, ", publish: {%s%s}", list("allow", allow), list("deny", deny))
			}
			conf.WriteString("}}\n")
		}
	}
	opts := config(t, "authorization { users: [ {user: root, password: x}\n"+conf.String()+"] }")
	quietly := opts()
	quietly.DisableShortFirstPing = true
	theirs, ours := oracle(t, quietly.Clone()), start(t, quietly)
	var wg sync.WaitGroup
	var want, got map[string]string
	wg.Go(func() { want = playMatrix(t, theirs.Addr(), users) })
	wg.Go(func() { got = playMatrix(t, ours.Addr(), users) })
	wg.Wait()
	for _, user := range users {
		if want[user] != got[user] {
			var i, j int
			_, _ = fmt.Sscanf(user, "u%dx%d-", &i, &j) // made above
			theirs, ours := apart(want[user], got[user])
			theirs = slices.DeleteFunc(theirs, func(l string) bool { return beyond(l, matrixPermissions[i]) })
			if len(theirs)+len(ours) == 0 {
				continue
			}
			t.Errorf("allow %q, deny %q:\nnats-server: %q\ngateway:     %q", matrixPermissions[i], matrixPermissions[j], theirs, ours)
		}
	}
	if n := strings.Count(fmt.Sprint(want), "Permissions Violation"); n < len(users) {
		t.Errorf("only %d refusals", n)
	}
}

// playMatrix has one user after the other publish and subscribe to everything, then somebody else publish, and returns what
// each was told.
func playMatrix(t *testing.T, addr net.Addr, users []string) map[string]string {
	t.Helper()
	var pubs, subs, members strings.Builder
	sid := 0
	for _, subject := range slices.Concat(matrixSubjects, matrixFilters) {
		fmt.Fprintf(&pubs, "PUB %s 1\r\nx\r\n", subject)
		sid++
		fmt.Fprintf(&subs, "SUB %s %d\r\n", subject, sid)
		for _, queue := range matrixQueues { // who of a group is sent something is chance: here each subscription is a group
			sid++
			fmt.Fprintf(&subs, "SUB %s %s.USER%d %d\r\n", subject, queue, sid, sid)
			fmt.Fprintf(&members, "SUB %s %s %d\r\n", subject, queue, sid)
		}
	}
	root := dialPlain(t, addr.String())
	defer root.Close()
	root.say(t, `CONNECT {"verbose":false,"pedantic":false,"user":"root","pass":"x"}`+"\r\nPING\r\n")
	untilPong(t, root)
	out := map[string]string{}
	for _, user := range users {
		login := `CONNECT {"verbose":false,"pedantic":false,"user":"` + user + `","pass":"x"}` + "\r\n"
		member := dialPlain(t, addr.String())
		member.say(t, login+members.String()+"PING\r\n")
		refused := untilPong(t, member)
		check(t, member.Close())
		c := dialPlain(t, addr.String())
		c.say(t, login+pubs.String()+strings.ReplaceAll(subs.String(), "USER", user)+"PING\r\n")
		refused += untilPong(t, c)
		root.say(t, pubs.String()+"PING\r\n")
		untilPong(t, root)
		c.say(t, "PING\r\n")
		lines := strings.Split(untilPong(t, c), "\r\n")
		slices.Sort(lines) // the order of two subscriptions is not settled
		out[user] = refused + strings.Join(lines, "\r\n")
		check(t, c.Close())
	}
	return out
}

// apart returns the lines of each that the other lacks.
func apart(a, b string) (onlyA, onlyB []string) {
	left, right := strings.Split(a, "\r\n"), strings.Split(b, "\r\n")
	without := func(of, other []string) []string {
		return slices.DeleteFunc(slices.Clone(of), func(l string) bool { return slices.Contains(other, l) })
	}
	return without(left, right), without(right, left)
}

// beyond tells a delivery on "a.>" to somebody who may have "a.*", of what that does not have: nats-server lets it pass.
func beyond(line, allow string) bool {
	f := strings.Fields(line)
	allow, _, _ = strings.Cut(allow, " ")
	return len(f) > 1 && f[0] == "MSG" && !server.SubjectMatchesFilter(f[1], allow)
}

// untilPong reads what comes before a PONG.
func untilPong(t *testing.T, c *rawConn) string {
	t.Helper()
	check(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	var got []byte
	for buf := make([]byte, 16<<10); !strings.HasSuffix(string(got), "PONG\r\n"); {
		n, err := c.Read(buf)
		if err != nil {
			t.Errorf("%v after %q", err, got)
			return string(got)
		}
		got = append(got, buf[:n]...)
	}
	return string(got)
}
