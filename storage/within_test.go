package storage

import "pgregory.net/rapid"

// checkWithin compares from where on the newest records count for no more than some bytes.
func (x *logTest) checkWithin(t *rapid.T) {
	total := x.l.State().Bytes
	most := rapid.Uint64Range(0, total+1).Draw(t, "within")
	left, want := total, uint64(0)
	for _, r := range x.m.head {
		if want = r.Seq; left <= most {
			break
		}
		left -= testSize(len(r.Key), len(r.Header), len(r.Data))
		want = x.m.lastSeq + 1
	}
	if len(x.m.head) == 0 {
		want = x.m.lastSeq + 1
	}
	if got, err := x.l.Within(most); err != nil || got != want {
		t.Fatalf("within %d of %d bytes: sequence %d, %v, want %d", most, total, got, err, want)
	}
}
