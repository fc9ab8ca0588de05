package session

import (
	"bytes"
	"errors"
	"io"
)

// maxFrame bounds one event: a snapshot of 2000 pending calls is a few
// megabytes. A longer one is skipped, not an error: the same snapshot can be
// read from the session itself.
const maxFrame = 16 << 20

// errFrameTooLong says that an event was skipped for its size; the stream goes
// on behind it.
var errFrameTooLong = errors.New("an event is larger than 16 MiB and was skipped")

// sseReader cuts an event stream (WHATWG HTML, section 9.2) into the data of its
// events. Only data fields matter here: the type stands in the JSON. Lines may
// end in LF, CR or CRLF.
type sseReader struct {
	r   io.Reader
	max int
	// buf[start:end] is what was read and not yet consumed.
	buf        []byte
	start, end int
	// scanned is how far behind start no line end was found.
	scanned int
	// anyCR is set while there may be a CR in buf[start:end].
	anyCR bool
	// skipLF is set when the line before ended in CR: a LF now belongs to it.
	skipLF bool
	// skipping is set while the rest of an oversized event is thrown away.
	skipping bool
	// event is the data of the event so far: mostly a part of buf, which is lent
	// then, and of data when it came in several lines or reads.
	event []byte
	lent  bool
	data  []byte
	err   error
	// full: the last read filled the buffer, so there is probably more.
	full bool
}

func newSSEReader(r io.Reader, maxFrame int) *sseReader {
	return &sseReader{r: r, max: maxFrame, buf: make([]byte, firstRead)}
}

const (
	// firstRead is small, because most streams are silent most of the time: of the
	// memory of an idle session this buffer was the largest part with mostRead.
	firstRead = 1 << 10
	// mostRead is how far the buffer grows for a stream that fills it.
	mostRead = 16 << 10
)

// next returns the data of the next event that has a data field, which may be
// empty, valid until the next call. errFrameTooLong is returned for an event that
// was skipped; every other error ends the stream. An event that the end of the
// stream cuts off is dropped.
func (s *sseReader) next() ([]byte, error) {
	s.event, s.lent = nil, false
	for lines := 0; ; {
		line, err := s.line()
		if err != nil {
			if !errors.Is(err, errFrameTooLong) {
				return nil, err
			}
			s.skipping = true
			continue
		}
		if len(line) == 0 {
			if s.skipping {
				s.skipping = false
				return nil, errFrameTooLong
			}
			if lines > 0 {
				return s.event, nil
			}
			continue
		}
		value, isData := dataField(line)
		if !isData || s.skipping {
			continue
		}
		s.add(value, lines)
		lines++
	}
}

// add adds a line to the data of the event. The first is not copied, because
// mostly it is the only one, and all of it in the buffer.
func (s *sseReader) add(value []byte, lines int) {
	if lines == 0 {
		s.event, s.lent = value, true
	} else {
		s.giveBack()
		s.data = append(append(s.data, '\n'), value...)
		s.event = s.data
	}
	if len(s.event) > s.max {
		s.event, s.lent, s.skipping = nil, false, true
	}
}

// giveBack copies what is lent of the buffer, which is about to change.
func (s *sseReader) giveBack() {
	if s.lent {
		s.data = append(s.data[:0], s.event...)
		s.event, s.lent = s.data, false
	}
}

// dataField returns the value of a data line; other fields and comments are
// not for us.
func dataField(line []byte) ([]byte, bool) {
	const name = "data"
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	value := line[len(name):]
	switch {
	case len(value) == 0:
		return value, true
	case value[0] != ':':
		return nil, false
	case len(value) > 1 && value[1] == ' ':
		return value[2:], true
	}
	return value[1:], true
}

// line returns the next line without its end, valid until the next call. A
// line that is too long is consumed as far as it was read and reported as
// errFrameTooLong.
func (s *sseReader) line() ([]byte, error) {
	for {
		if s.skipLF && s.start < s.end {
			s.skipLF = false
			if s.buf[s.start] == '\n' {
				s.start++
			}
		}
		if line, ok := s.cut(); ok {
			return line, nil
		}
		if s.end-s.start > s.max {
			s.start, s.end, s.scanned = 0, 0, 0
			return nil, errFrameTooLong
		}
		if s.err != nil {
			return nil, s.err
		}
		s.fill()
	}
}

// cut takes a whole line from the buffer.
func (s *sseReader) cut() ([]byte, bool) {
	window := s.buf[s.start+s.scanned : s.end]
	i := s.lineEnd(window)
	if i < 0 {
		s.scanned = s.end - s.start
		return nil, false
	}
	stop := s.start + s.scanned + i
	line := s.buf[s.start:stop]
	s.skipLF = s.buf[stop] == '\r'
	s.start, s.scanned = stop+1, 0
	return line, true
}

// lineEnd is the place of the first CR or LF. Streams with LF only are the
// rule, so CR is looked for only where there is one, and within the line that LF
// ends.
func (s *sseReader) lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if !s.anyCR {
		return lf
	}
	head := b
	if lf >= 0 {
		head = b[:lf]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill reads more behind what is there, making room first.
func (s *sseReader) fill() {
	s.giveBack()
	if s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
		s.start, s.end = 0, s.end-s.start
	}
	if s.end == len(s.buf) || (s.full && len(s.buf) < mostRead) {
		grown := make([]byte, 2*len(s.buf))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	n, err := s.r.Read(s.buf[s.end:])
	s.anyCR = (s.anyCR && s.end > 0) || bytes.IndexByte(s.buf[s.end:s.end+n], '\r') >= 0
	s.end += n
	s.err, s.full = err, s.end == len(s.buf)
}
