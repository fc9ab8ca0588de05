package session

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// frames reads a whole stream; skipped events stand as "(skipped)".
func frames(r io.Reader, limit int) (events []string, err error) {
	s := newSSEReader(r, limit)
	for {
		data, err := s.next()
		switch {
		case errors.Is(err, errFrameTooLong):
			events = append(events, "(skipped)")
		case err != nil:
			return events, err
		default:
			events = append(events, string(data))
		}
	}
}

func TestStreamIsCutIntoTheDataOfItsEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40_000)
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"LF":                                 {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"CRLF":                               {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"CR":                                 {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
		"mixed line ends":                    {"data: a\r\n\ndata: b\n\r\n", []string{"a", "b"}},
		"no blank after the colon":           {"data:a\n\n", []string{"a"}},
		"only one blank is taken off":        {"data:  a\n\n", []string{" a"}},
		"several data lines are one event":   {"data: a\ndata: b\n\n", []string{"a\nb"}},
		"other fields and comments are left": {": ping\n\nevent: x\nid: 1\nretry: 3\ndata: a\ndatax: no\n\n", []string{"a"}},
		"an empty data field is an event":    {"event: ping\ndata:\n\ndata\n\ndata: a\n\n", []string{"", "", "a"}},
		"what the end cuts off is dropped":   {"data: a\n\ndata: b\n", []string{"a"}},
		"a long line":                        {"data: " + long + "\n\n", []string{long}},
		"an event too long is skipped":       {"data: a\n\ndata: " + long + long + "\n\ndata: b\n\n", []string{"a", "(skipped)", "b"}},
		"many lines too long are skipped":    {strings.Repeat("data: "+long[:30_000]+"\n", 3) + "\ndata: b\n\n", []string{"(skipped)", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, r := range map[string]io.Reader{
				"at once": strings.NewReader(c.stream), "by bytes": iotest.OneByteReader(strings.NewReader(c.stream)),
				"with the end": iotest.DataErrReader(strings.NewReader(c.stream)),
			} {
				got, err := frames(r, 50_000)
				if !errors.Is(err, io.EOF) || !slices.Equal(got, c.want) {
					t.Errorf("%s: got %.60q (%v), want %.60q", how, got, err, c.want)
				}
			}
		})
	}
}

func TestEndlessLineIsNotKept(t *testing.T) {
	t.Parallel()
	const limit = 50_000
	line := io.LimitReader(endless{}, 20<<20)
	s := newSSEReader(io.MultiReader(strings.NewReader("data: "), line, strings.NewReader("\n\ndata: b\n\n")), limit)
	if _, err := s.next(); !errors.Is(err, errFrameTooLong) {
		t.Errorf("the endless line gave %v, want that it was skipped", err)
	}
	if data, err := s.next(); string(data) != "b" || err != nil {
		t.Errorf("after it came %.60q (%v), want b", data, err)
	}
	if kept := len(s.buf) + cap(s.data); kept > 8*limit {
		t.Errorf("%d bytes are kept of a stream whose events may have %d", kept, limit)
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// plainFrames is the standard's algorithm written for shortness: all of the
// stream in memory, line by line.
func plainFrames(stream []byte) []string {
	text := strings.ReplaceAll(string(stream), "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var events, data []string
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	ended := strings.HasSuffix(text, "\n")
	lines := []string{}
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	if !ended && len(lines) > 0 {
		lines = lines[:len(lines)-1]
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "":
			if len(data) > 0 {
				events = append(events, strings.Join(data, "\n"))
			}
			data = nil
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return events
}

func FuzzStreamReader(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "data: a\r\rdata:b\r\n\r\n", ":\n\ndata\ndata:\n\n", "data: \r\ndata:x\n\r"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if bytes.ContainsRune(stream, '\x85') || len(stream) > 4096 {
			return
		}
		want := plainFrames(stream)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
			got, err := frames(r, 1<<20)
			if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
				t.Fatalf("got %q (%v), want %q", got, err, want)
			}
		}
	})
}

// pieces reads so many bytes at a time.
type pieces struct {
	io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) {
	return p.Reader.Read(b[:min(p.size, len(b))])
}

func TestStreamIsTheSameInPiecesOfAnySize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("data: "+strings.Repeat("x", 900)+"\n", 3)
	stream := "event: a\nid: 1\ndata: one\n\ndata: two\ndata: lines\n\n" + long + "\ndata: in\r\ndata: between\r\n\r\n" + textFrame + "data:\rdata\r\r: end\ndata: b\n\n"
	want := plainFrames([]byte(stream))
	for size := range 5000 {
		got, err := frames(pieces{strings.NewReader(stream), size + 1}, 1<<20)
		if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d bytes: got %q (%v), want %q", size+1, got, err, want)
		}
	}
}

// Reading is all that the text of an agent costs, so it is not copied too.
func TestEventOfOneLineIsAPartOfTheBuffer(t *testing.T) {
	s := newSSEReader(repeat("event: x\n"+textFrame, 1<<20), maxFrame)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.next() }); n != 0 {
		t.Errorf("an event takes %v allocations", n)
	}
	if len(s.buf) != mostRead || cap(s.data) > len(textFrame) {
		t.Errorf("%d bytes are read at a time and %d copied", len(s.buf), cap(s.data))
	}
}
