//go:build !linux

package storage

import "runtime"

// yieldThread lets other goroutines run first.
func yieldThread() { runtime.Gosched() }
