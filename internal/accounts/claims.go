package accounts

import (
	"cmp"
	"slices"

	"github.com/nats-io/jwt/v2"
)

// FromClaims returns what the claims of an account say.
func FromClaims(c *jwt.AccountClaims) *Account {
	a := &Account{Name: c.Subject, SigningKeys: c.SigningKeys.Keys()}
	if c.Trace != nil {
		a.TraceTo, a.TraceShare = string(c.Trace.Destination), cmp.Or(c.Trace.Sampling, allOfIt)
	}
	slices.Sort(a.SigningKeys)
	for _, e := range c.Exports {
		a.Exports = append(a.Exports, exportOf(e))
	}
	for _, i := range c.Imports {
		a.Imports = append(a.Imports, importOf(i))
	}
	for subject, list := range c.Mappings {
		m := Mapping{Subject: string(subject)}
		for _, d := range list {
			m.Destinations = append(m.Destinations, Destination{
				Subject: string(d.Subject), Weight: int(d.GetWeight()), Cluster: d.Cluster,
			})
		}
		a.Mappings = append(a.Mappings, m)
	}
	return a
}

func exportOf(e *jwt.Export) Export {
	out := Export{
		Subject: string(e.Subject), Service: e.IsService(), TokenRequired: e.TokenReq,
		TokenPosition: int(e.AccountTokenPosition), //nolint:gosec // a token of a subject
		Revoked:       e.Revocations, Threshold: e.ResponseThreshold, Trace: e.AllowTrace,
	}
	switch e.ResponseType {
	case jwt.ResponseTypeStream:
		out.Response = Streamed
	case jwt.ResponseTypeChunked:
		out.Response = Chunked
	}
	if e.Latency != nil {
		out.Latency = &Latency{Results: string(e.Latency.Results), Sampling: int(e.Latency.Sampling)}
	}
	return out
}

// importOf also reads the older form, where To is a stream's prefix or the service's subject there.
func importOf(i *jwt.Import) Import {
	out := Import{
		Account: i.Account, Subject: string(i.Subject), Local: string(i.LocalSubject), Service: i.IsService(),
		Share: i.Share, Token: i.Token, Trace: i.AllowTrace,
	}
	switch {
	case out.Local != "":
	case !out.Service:
		out.Local = Prefixed(string(i.To), out.Subject) //nolint:staticcheck // the older form
	default:
		out.Local = out.Subject
		if to := string(i.To); to != "" { //nolint:staticcheck // the older form
			out.Subject = to
		}
	}
	return out
}
