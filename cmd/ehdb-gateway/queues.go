package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/gateway"
)

// queues are the queue groups of clients, by account, subject and name. Those of inboxes are between a client and
// itself.
func queues(s *gateway.Server) []face.QueueGroup {
	members := make(map[face.QueueGroup]int)
	for _, c := range s.Connections() {
		if c.NumSubs == 0 {
			continue
		}
		with, there := s.ConnectionSubs(c.CID)
		if !there {
			continue
		}
		for _, sub := range with.Subs {
			if sub.Queue != "" && !strings.HasPrefix(sub.Subject, "_INBOX") {
				members[face.QueueGroup{Account: with.Account, Subject: sub.Subject, Queue: sub.Queue}]++
			}
		}
	}
	out := make([]face.QueueGroup, 0, len(members))
	for q, n := range members {
		q.Members = n
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b face.QueueGroup) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Queue, b.Queue))
	})
	return out
}
