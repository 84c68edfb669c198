package part

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Lost is a stretch of a file that Salvage could not read.
type Lost struct {
	Offset, Len int64
	// Log and Data are known when the block's header was whole: Data tells that there were records of Log in it. Else
	// the stretch may hold anything.
	Known bool
	Log   uint64
	Data  bool
	Err   error
}

// Salvage reads what is whole of a damaged part without its index: it goes from block to block, and looks for the next
// header behind what is damaged. fn is called with the records of each data block, in the order of the file; blocks of
// one log ascend, so a gap between two blocks of it, beyond what deletions account for, is what was lost. An error of
// fn ends it. Without a readable header the footer has to be whole, and the part not encrypted.
func Salvage(fsys vfs.FS, name string, k *crypt.Keys, fn func(log uint64, recs []Record) error) ([]Lost, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	s := salvager{r: Reader{path: name, f: f, cache: noCache{}}, fn: fn}
	err = s.run(k)
	if e := f.Close(); err == nil {
		err = e
	}
	return s.lost, err
}

type salvager struct {
	r    Reader
	fn   func(log uint64, recs []Record) error
	lost []Lost
}

func (s *salvager) run(k *crypt.Keys) error {
	size, err := s.r.f.Size()
	if err != nil {
		return err
	}
	end, err := s.ends(size)
	if err != nil {
		return err
	}
	if s.r.aead, err = s.r.head.open(k); err != nil {
		return fmt.Errorf("%s: %w", s.r.path, err)
	}
	// readBlock goes by the footer
	s.r.foot.size = uint64(end + footerSize)
	for off := min(int64(headerSize), end); off < end; {
		n, err := s.step(off, end)
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// ends reads header and footer as far as they are whole, and returns where the blocks end.
func (s *salvager) ends(size int64) (end int64, err error) {
	b := make([]byte, headerSize)
	headErr, footErr := errors.New("file is too short for a header"), errors.New("file is too short for a footer")
	if size >= headerSize {
		if err := s.r.readAt(b, 0); err != nil {
			return 0, err
		}
		s.r.head, headErr = decodeHeader(b)
	}
	end = size
	if size >= footerSize {
		if err := s.r.readAt(b[:footerSize], size-footerSize); err != nil {
			return 0, err
		}
		if s.r.foot, footErr = decodeFooter(b[:footerSize], size); footErr == nil {
			end -= footerSize
		}
	}
	if headErr == nil {
		return end, nil
	}
	if footErr != nil {
		return 0, s.r.corrupt(0, "neither header (%w) nor footer (%w) can be read", headErr, footErr)
	}
	if s.r.foot.cipher != crypt.Plain {
		return 0, s.r.corrupt(0, "the header, which has the key of all the rest, cannot be read: %w", headErr)
	}
	s.lost = append(s.lost, Lost{Len: headerSize, Err: headErr})
	s.r.head = header{id: s.r.foot.id}
	return end, nil
}

// step reads the block at off, or passes over what is damaged there, and returns how far it came.
func (s *salvager) step(off, end int64) (int64, error) {
	h, ok, err := s.head(off, end)
	if err != nil {
		return 0, err
	}
	if !ok {
		next := off + 1
		for ; next < end; next++ {
			if _, ok, err := s.head(next, end); err != nil {
				return 0, err
			} else if ok {
				break
			}
		}
		s.lost = append(s.lost, Lost{Offset: off, Len: next - off, Err: errors.New("no block header")})
		return next - off, nil
	}
	ref := blockRef{off: off, len: blockHeader + h.len}
	recs, err := s.records(ref, &h)
	if ce, ok := errors.AsType[*CorruptError](err); ok {
		s.lost = append(s.lost, Lost{
			Offset: off, Len: int64(ref.len), Known: true, Log: h.log, Data: h.kind == kindData, Err: ce.Err,
		})
	} else if err != nil {
		return 0, err
	}
	if len(recs) > 0 {
		err = s.fn(h.log, recs)
	} else {
		err = nil
	}
	return int64(ref.len), err
}

// head reads the block header at off if there is one.
func (s *salvager) head(off, end int64) (h block, ok bool, err error) {
	var b [blockHeader]byte
	if end-off < blockHeader {
		return h, false, nil
	}
	if err := s.r.readAt(b[:], off); err != nil {
		return h, false, err
	}
	h, bad := decodeBlock(b[:], blockSeed(&s.r.head.id, off))
	return h, bad == nil && int64(h.len) <= end-off-blockHeader, nil
}

// records reads a block, and its records if it is a data block: those before a damaged place are no use without those
// behind it, so it is all or none.
func (s *salvager) records(ref blockRef, h *block) ([]Record, error) {
	raw, err := s.r.readBlock(ref, h.kind, h.log)
	if err != nil || h.kind != kindData {
		return nil, err
	}
	if len(raw) < dataFixed {
		return nil, s.r.corrupt(ref.off, "%w", errData)
	}
	d, err := parseData(raw, le.Uint32(raw))
	if err != nil {
		return nil, s.r.corrupt(ref.off, "%w", err)
	}
	var recs []Record
	pos := dataFixed
	for range d.count {
		var r Record
		if pos, err = d.at(pos, &r); err != nil {
			return nil, s.r.corrupt(ref.off, "%w", err)
		}
		recs = append(recs, r)
	}
	return recs, nil
}
