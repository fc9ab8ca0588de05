package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// members are the members of a JSON object by name, undecoded.
type members map[string]json.RawMessage

// readMembers reads a request's JSON object, which may have the known members
// only, each once. When it cannot, it answers and returns false.
func readMembers(w http.ResponseWriter, r *http.Request, maxBytes int64, known ...string) (members, bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		problem(w, http.StatusUnsupportedMediaType, "Send the body as Content-Type: application/json.")
		return nil, false
	}
	if r.Header.Get("Content-Encoding") != "" {
		problem(w, http.StatusUnsupportedMediaType, "Send the body without Content-Encoding.")
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body may have %d bytes at most.", maxBytes))
		return nil, false
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "The body did not arrive whole.")
		return nil, false
	}
	m, err := parseMembers(body, known)
	if err != nil {
		problem(w, http.StatusBadRequest, "The body must be one JSON object: "+err.Error()+".")
		return nil, false
	}
	return m, true
}

// parseMembers is strict where encoding/json is not: names count with their
// case, and a member that stands twice is refused.
func parseMembers(body []byte, known []string) (members, error) {
	switch {
	case !utf8.Valid(body):
		return nil, errors.New("it is not UTF-8")
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errors.New("it is empty")
	case !json.Valid(body):
		return nil, errors.New("it is not valid JSON")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("it is another JSON value")
	}
	m := members{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		switch _, twice := m[key]; {
		case !slices.Contains(known, key):
			return nil, fmt.Errorf("the member %q is not known here, only %s", key, strings.Join(known, ", "))
		case twice:
			return nil, fmt.Errorf("the member %q stands twice", key)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		m[key] = value
	}
	return m, nil
}

// decode puts a member's value where into points; a member that is absent or
// null leaves it. want says in words what the value must be.
func (m members) decode(name string, into any, want string) error {
	if raw := m[name]; raw != nil && json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("%s must be %s", name, want)
	}
	return nil
}
