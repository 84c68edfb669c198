package storage

// lag is how far the sealer is behind those who append. What is not sealed takes RAM (its index) and disk, and is read
// when the directory is opened, so it is bounded: producers pause, and those who do not are refused.
type lag uint8

const (
	lagNone  lag = iota
	lagStall     // producers are asked to pause
	lagFull      // messages are refused with ErrFull
)

// weighBacklog looks whether the sealer keeps up.
func (w *writer) weighBacklog() {
	o := &w.opts
	records, bytes := w.unsealed.backlog()
	behind := lagNone
	switch {
	case records >= o.MaxUnsealed+o.MaxUnsealed/4 || bytes >= o.MaxUnsealedBytes+o.MaxUnsealedBytes/4:
		behind = lagFull
	case records >= o.MaxUnsealed || bytes >= o.MaxUnsealedBytes:
		behind = lagStall
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.behind
	w.behind = behind
	switch {
	case behind != lagNone:
		if was == lagNone {
			w.held.Add(1)
		}
		if w.err == nil && w.noRoom == nil {
			w.hold()
		}
	case was != lagNone && w.over == 0:
		w.unstall()
	}
}
