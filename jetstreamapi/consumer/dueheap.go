package consumer

// dueHeap orders entries by due, then by sequence. Entries that never expire are left out.
type dueHeap []*entry

func (h dueHeap) less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].sseq < h[j].sseq
}

func (h dueHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *dueHeap) push(e *entry) {
	if e.due == never {
		e.heapIndex = -1
		return
	}
	e.heapIndex = len(*h)
	*h = append(*h, e)
	h.up(e.heapIndex)
}

func (h *dueHeap) remove(e *entry) {
	i := e.heapIndex
	if i < 0 {
		return
	}
	last := len(*h) - 1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	e.heapIndex = -1
	if i != last {
		h.down(i)
		h.up(i)
	}
}

func (h *dueHeap) fix(e *entry) {
	h.remove(e)
	h.push(e)
}

func (h dueHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h dueHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
