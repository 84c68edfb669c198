package storage

// KeyAhead is what parts have of one key, looked up before a lock is taken under which there is to be no I/O. The zero
// value knows nothing.
type KeyAhead struct {
	key     []byte
	view    *view
	version uint64 // of the log's runs in parts
	posts   []keyPost
}

// keyPost is a record of the key, deleted or not.
type keyPost struct {
	run *sealed
	seq uint64
	ord uint32
}

// maxPosts is how many records of a key are remembered.
const maxPosts = 16

// Key returns the key.
func (a *KeyAhead) Key() []byte { return a.key }

// Forget lets go of all but memory to use again.
func (a *KeyAhead) Forget() {
	clear(a.posts)
	*a = KeyAhead{posts: a.posts[:0]}
}

// LookAhead finds what parts have of key, for KeyAt. It reads parts, so it is called without the owner's lock; what a
// deletion of the key's first record needs of them is in the block cache afterwards. It keeps key.
func (l *Log) LookAhead(key []byte, a *KeyAhead) {
	*a = KeyAhead{key: key, posts: a.posts[:0]}
	l.mu.RLock()
	v, version := l.head, l.version
	views, err := snapshot(v.sealed, atHead)
	l.mu.RUnlock()
	defer release(views)
	for i := range views {
		if err != nil {
			return // KeyAt tells of it
		}
		err = views[i].postsOf(a)
	}
	if err == nil && len(a.posts) <= maxPosts {
		a.view, a.version = v, version
	}
}

// postsOf adds the key's records in a run to a, if they are not too many.
func (v *sealedView) postsOf(a *KeyAhead) error {
	sec, err := v.section()
	if err != nil {
		return err
	}
	known := len(a.posts)
	err = sec.EachOf(a.key, maxPosts+1-known, func(ord uint32, seq uint64) {
		a.posts = append(a.posts, keyPost{v.sealed, seq, ord})
	})
	if err == nil && known == 0 && len(a.posts) > 0 {
		_, err = sec.Size(a.posts[0].ord)
	}
	return err
}

// KeyAt is Key of what a looked up. It reads no part, unless the log's runs in parts are others since, or have more
// records of the key than a remembers.
func (l *Log) KeyAt(a *KeyAhead) KeyState {
	l.mu.RLock()
	if a.view == nil || a.view != l.head || a.version != l.version {
		l.mu.RUnlock()
		return l.Key(a.key)
	}
	defer l.mu.RUnlock()
	var ks KeyState
	for i := range a.posts {
		if p := &a.posts[i]; !p.run.head.dead.Contains(p.ord) {
			ks.add(KeyState{First: p.seq, Last: p.seq, Count: 1})
		}
	}
	for _, x := range l.head.ram() {
		if id := x.keys.find(a.key); id != noKey {
			ks.add(x.headKey(x.keys.info(id)))
		}
	}
	return ks
}

// UnsealedKeys returns the keys that records in RAM have, visible or not. It reads no parts.
func (l *Log) UnsealedKeys() (keys [][]byte) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, x := range l.head.ram() {
		x.keys.each(func(id uint32) bool {
			keys = append(keys, append([]byte(nil), x.keys.key(id)...))
			return true
		})
	}
	return keys
}
