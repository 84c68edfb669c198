package part

// LiveKeys goes through the keys of a section that have records which are not deleted, in order. Of a section of which
// nothing is deleted it reads the dictionary alone.
type LiveKeys struct {
	s     *Section
	dead  *Tombstones
	pages dict // where the walk is
	walk  keyWalk
	spans dict // where the postings of a key are said to be
	posts postings
	err   error
}

// LiveKeys starts before the first key.
func (s *Section) LiveKeys(dead *Tombstones) *LiveKeys {
	c := &LiveKeys{s: s, dead: dead, pages: s.dict(), spans: s.dict(), posts: s.postings()}
	c.walk.p = &c.pages.p
	return c
}

// Next returns the next key, valid until the call after it; ok is false at the end and after an error.
func (c *LiveKeys) Next() (key []byte, ok bool) {
	for c.err == nil {
		p := &c.pages.p
		id := p.firstID + c.walk.i
		if c.walk.i >= p.n { // also before the first page
			if id >= c.s.info.Keys {
				return nil, false
			}
			if c.err = c.pages.at(id); c.err != nil {
				break
			}
			buf := c.walk.key[:0]
			c.walk = p.walk(0)
			c.walk.key = buf
		}
		if err := c.walk.next(); err != nil {
			c.err = c.s.corrupt(p.ref, err)
			break
		}
		live, err := c.live(id)
		if err != nil {
			c.err = err
			break
		}
		if live {
			return c.walk.key, true
		}
	}
	return nil, false
}

// Err returns what ended the walk early, nil if nothing did.
func (c *LiveKeys) Err() error { return c.err }

func (c *LiveKeys) live(id uint32) (bool, error) {
	if c.dead.empty() {
		return true, nil
	}
	lo, hi, err := c.spans.span(id)
	if err != nil {
		return false, err
	}
	_, ok, err := c.s.lastIn(&c.posts, lo, hi, c.s.info.Count, c.dead)
	return ok, err
}
