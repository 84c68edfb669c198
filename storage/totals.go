package storage

// State returns the log's totals at the head.
func (l *Log) State() State { return l.state(atHead) }

// VisibleState returns the log's totals as readers see them.
func (l *Log) VisibleState() State { return l.state(visible) }

func (l *Log) state(of which) State {
	l.mu.RLock()
	v, s := l.vis, State{LastSeq: l.visible.Load(), LastTime: l.visTime}
	if of == atHead {
		v, s.LastSeq, s.LastTime = l.head, l.lastSeq, l.lastTime
	}
	s.FirstSeq = s.LastSeq + 1
	var first []*sealed
	for i, run := range v.sealed {
		d := run.deaths(of)
		s.Messages += d.msgs
		s.Bytes += d.bytes
		if first == nil && d.msgs > 0 {
			first = v.sealed[i : i+1]
		}
	}
	for _, x := range v.ram() {
		msgs, bytes, ord, end := x.visMsgs, x.visBytes, x.first, x.vis
		if of == atHead {
			msgs, bytes, ord, end = x.msgs, x.bytes, x.headFirst, x.end
		} else if s.Messages == 0 {
			ord = x.next(ord, end)
		}
		if s.Messages == 0 && ord < end {
			e := x.at(ord)
			s.FirstSeq, s.FirstTime = e.seq, e.time
		}
		s.Messages += msgs
		s.Bytes += bytes
	}
	views, err := snapshot(first, of)
	l.mu.RUnlock()
	if err == nil && len(views) > 0 {
		var f firstRecord
		if f, _, err = views[0].firstLeft(); err == nil {
			s.FirstSeq, s.FirstTime = f.seq, f.time
		}
	}
	release(views)
	l.fault(err)
	s.Deleted = s.LastSeq + 1 - s.FirstSeq - s.Messages
	return s
}

// Visible returns the visible position: the highest sequence that reads may show.
func (l *Log) Visible() uint64 { return l.visible.Load() }

// Key returns the totals of one key at the head.
func (l *Log) Key(key []byte) KeyState {
	l.mu.RLock()
	var ks KeyState
	for _, x := range l.head.ram() {
		if id := x.keys.find(key); id != noKey {
			ks.add(x.headKey(x.keys.info(id)))
		}
	}
	views, err := snapshot(l.head.sealed, atHead)
	l.mu.RUnlock()
	defer release(views)
	if err == nil {
		ks, err = sealedKey(views, key, ks)
	}
	l.fault(err)
	return ks
}

// add adds what comes after k.
func (k *KeyState) add(after KeyState) {
	if after.Count == 0 {
		return
	}
	if k.Count == 0 {
		k.First = after.First
	}
	k.Last = after.Last
	k.Count += after.Count
}

// sealedKey adds what runs in parts have of a key to what comes after them.
func sealedKey(views []sealedView, key []byte, after KeyState) (ks KeyState, err error) {
	for i := range views {
		sec, err := views[i].section()
		if err != nil {
			return ks, err
		}
		st, err := sec.State(key, views[i].dead)
		if err != nil {
			return ks, err
		}
		ks.add(KeyState(st))
	}
	ks.add(after)
	return ks, nil
}
