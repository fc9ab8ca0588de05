package forward

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
)

// errCoding means that a reply's content coding is unknown or cannot be undone.
var errCoding = errors.New("the content coding cannot be undone")

// maxCodings bounds how many content codings a reply may have one over another.
const maxCodings = 3

// source remembers how the reading of a reply's raw body ended, because a
// decoder reports a cut connection and a damaged stream alike.
type source struct {
	body io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// decoded undoes the content codings of a reply, the last applied first.
func decoded(codings []string, raw io.Reader) (io.Reader, error) {
	list := strings.FieldsFunc(strings.ToLower(strings.Join(codings, ",")), func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t'
	})
	if len(list) > maxCodings {
		return nil, errCoding
	}
	reader := raw
	for _, coding := range slices.Backward(list) {
		next, err := decoder(coding, reader)
		if err != nil {
			return nil, err
		}
		reader = next
	}
	return reader, nil
}

// decoder undoes one content coding. A body of no bytes has none to undo.
func decoder(coding string, raw io.Reader) (io.Reader, error) {
	if coding == "identity" {
		return raw, nil
	}
	buffered := bufio.NewReader(raw)
	if _, err := buffered.Peek(1); err != nil {
		return buffered, nil //nolint:nilerr // the reader gives the error again
	}
	switch coding {
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(buffered)
		return r, err
	case "deflate":
		return inflater(buffered)
	case "br":
		return brotli.NewReader(buffered), nil
	}
	return nil, errCoding
}

// inflater takes both things that servers call deflate: with the zlib header,
// as the standard says, and without.
func inflater(buffered *bufio.Reader) (io.Reader, error) {
	head, err := buffered.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(buffered)
	}
	return flate.NewReader(buffered), nil
}
