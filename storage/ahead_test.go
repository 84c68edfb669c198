package storage

import "pgregory.net/rapid"

// checkAhead compares what was looked up of a key, now and some time ago, with what there is.
func (x *logTest) checkAhead(t *rapid.T, key []byte, want KeyState) {
	t.Helper()
	if x.aheadOf != x.l {
		x.aheadOf, x.ahead = x.l, map[string]*KeyAhead{}
	}
	if a := x.ahead[string(key)]; a != nil { // looked up some time ago
		if got := x.l.KeyAt(a); got != want {
			t.Fatalf("key %q is %+v as looked up ahead, want %+v", key, got, want)
		}
	}
	a := &KeyAhead{}
	x.l.LookAhead(key, a)
	x.ahead[string(key)] = a
	if got := x.l.KeyAt(a); got != want {
		t.Fatalf("key %q is %+v as looked up, want %+v", key, got, want)
	}
}
