package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/internal/accounts"
)

// TestAccountsAreReadAlike: a reload of the same file finds the same accounts, so that it can leave them alone.
func TestAccountsAreReadAlike(t *testing.T) {
	const text = `
		mappings { "g": "h" }
		accounts {
			A {
				users: [{user: a, password: a}]
				exports: [
					{stream: "s.>", accounts: [B]}, {service: x, threshold: "3s", latency: {sampling: 5%, subject: l}}, {service: w, response: chunked, allow_trace: true}
					{service: y, latency: {sampling: headers, subject: l}}, {service: z, latency: l}
				]
				mappings { "a": "b", "C.*": [{destination: "d.$1", weight: 20%}], "e": {destination: f, weight: 30, cluster: c} }
			}
			B { msg_trace: {dest: t, sampling: 5%}, users: [{user: b, password: b}], imports: [
				{stream: {account: A, subject: "s.>"}, prefix: p, allow_trace: true}, {service: {account: A, subject: x}, to: y, share: true}
			] }
		}`
	read := func() []*accounts.Account {
		list := mustLoad(t, text).Accounts
		slices.SortFunc(list, func(a, b *accounts.Account) int { return strings.Compare(a.Name, b.Name) })
		return list
	}
	first := read()
	for range 10 {
		if again := read(); !reflect.DeepEqual(first, again) {
			t.Fatalf("%+v\n%+v", first, again)
		}
	}
	want := []*accounts.Account{
		{Name: "$G", Mappings: []accounts.Mapping{{Subject: "g", Destinations: []accounts.Destination{{Subject: "h", Weight: 100}}}}},
		{
			Name: "A",
			Exports: []accounts.Export{
				{Subject: "s.>", Approved: []string{"B"}},
				{
					Subject: "x", Service: true, Threshold: 3 * time.Second,
					Latency: &accounts.Latency{Results: "l", Sampling: 5},
				},
				{Subject: "w", Service: true, Response: accounts.Chunked, Trace: true},
				{Subject: "y", Service: true, Latency: &accounts.Latency{Results: "l"}},
				{Subject: "z", Service: true, Latency: &accounts.Latency{Results: "l", Sampling: 100}},
			},
			Mappings: []accounts.Mapping{
				{Subject: "C.*", Destinations: []accounts.Destination{{Subject: "d.$1", Weight: 20}}},
				{Subject: "a", Destinations: []accounts.Destination{{Subject: "b", Weight: 100}}},
				{Subject: "e", Destinations: []accounts.Destination{{Subject: "f", Weight: 30, Cluster: "c"}}},
			},
		},
		{Name: "B", TraceTo: "t", TraceShare: 5, Imports: []accounts.Import{
			{Account: "A", Subject: "s.>", Local: "p.s.>", Trace: true},
			{Account: "A", Subject: "x", Local: "y", Service: true, Share: true},
		}},
	}
	for i := range want {
		if i >= len(first) || !reflect.DeepEqual(first[i], want[i]) {
			t.Errorf("got %+v\nwant %+v", first[min(i, len(first)-1)], want[i])
		}
	}
}
