package auth

import (
	"net"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// permissionsOf returns the permissions in claims, nil if there are none.
func permissionsOf(p *jwt.Permissions) *server.Permissions {
	out := &server.Permissions{
		Publish: subjectsOf(p.Pub), Subscribe: subjectsOf(p.Sub),
	}
	if p.Resp != nil {
		out.Response = &server.ResponsePermission{MaxMsgs: p.Resp.MaxMsgs, Expires: p.Resp.Expires}
	}
	if out.Publish == nil && out.Subscribe == nil && out.Response == nil {
		return nil
	}
	return out
}

func subjectsOf(p jwt.Permission) *server.SubjectPermission {
	if len(p.Allow) == 0 && len(p.Deny) == 0 {
		return nil
	}
	return &server.SubjectPermission{Allow: p.Allow, Deny: p.Deny}
}

// typeAllowed reports whether types, which may be in any case, name the connection type or are empty. A list of types
// that nobody knows allows none.
func typeAllowed(types []string, connectionType string) bool {
	for _, t := range types {
		if strings.EqualFold(t, connectionType) {
			return true
		}
	}
	return len(types) == 0
}

// sourceAllowed reports whether host is in one of the networks, or there are none.
func sourceAllowed(networks []string, host string) bool {
	if len(networks) == 0 {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return false
	}
	for _, cidr := range networks {
		_, n, err := net.ParseCIDR(cidr)
		if err != nil {
			return false
		}
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// deadlineOf returns when a login of the user that begins now has to end, zero for never; false: it may not begin.
func deadlineOf(user *jwt.UserClaims, now time.Time) (time.Time, bool) {
	deadline, ok := windowEnd(user, now)
	if !ok {
		return time.Time{}, false
	}
	if expires := unixTime(user.Expires); !expires.IsZero() && (deadline.IsZero() || expires.Before(deadline)) {
		deadline = expires
	}
	return deadline, true
}

// windowEnd returns the latest end of the times of day in which the user may be connected, of those that now is in.
// Zero: there are none to keep to. False: now is in none.
func windowEnd(user *jwt.UserClaims, now time.Time) (end time.Time, ok bool) {
	if len(user.Times) == 0 {
		return time.Time{}, true
	}
	where := time.Local //nolint:gosmopolitan // as in NATS: times without a place are the server's
	if user.Locale != "" {
		var err error
		if where, err = time.LoadLocation(user.Locale); err != nil {
			return time.Time{}, false
		}
	}
	now = now.In(where)
	for _, r := range user.Times {
		from, err := timeOfDay(r.Start, now)
		if err != nil {
			return time.Time{}, false
		}
		to, err := timeOfDay(r.End, now)
		if err != nil {
			return time.Time{}, false
		}
		if from.After(to) { // over midnight: it began yesterday, or ends tomorrow
			if now.Before(to) {
				from = from.AddDate(0, 0, -1)
			} else {
				to = to.AddDate(0, 0, 1)
			}
		}
		if from.Before(now) && to.After(now) && to.After(end) {
			end, ok = to, true
		}
	}
	return end, ok
}

// timeOfDay is a time such as 15:04:05 on the day of now.
func timeOfDay(text string, now time.Time) (time.Time, error) {
	t, err := time.ParseInLocation(time.TimeOnly, text, now.Location())
	if err != nil {
		return time.Time{}, err
	}
	y, m, d := now.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
}
