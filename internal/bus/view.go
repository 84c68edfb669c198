package bus

import "unsafe"

// view returns b as a string, and bytesOf s as bytes, without a copy: for the time of a call that neither changes nor
// keeps them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
