package agentsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// faultSpec is a Fault as JSON has it; durations are Go's, like "2s".
type faultSpec struct {
	Kind       string `json:"kind"`
	On         string `json:"on,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	Count      int    `json:"count,omitempty"`
	Skip       int    `json:"skip,omitempty"`
	For        string `json:"for,omitempty"`
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retry_after,omitempty"`
	Body       string `json:"body,omitempty"`
	Delay      string `json:"delay,omitempty"`
	KeepKey    bool   `json:"keep_key,omitempty"`
	After      int    `json:"after,omitempty"`
	N          int    `json:"n,omitempty"`
}

// fault reads the words of a spec and checks the whole.
func (spec faultSpec) fault() (Fault, error) {
	f := Fault{
		Kind: FaultKind(spec.Kind), SessionID: spec.SessionID, Count: spec.Count, Skip: spec.Skip, Status: spec.Status,
		RetryAfter: spec.RetryAfter, Body: spec.Body, KeepKey: spec.KeepKey, After: spec.After, N: spec.N,
	}
	_, err := f.Kind.info()
	if err != nil {
		return f, err
	}
	if f.For, err = duration("for", spec.For); err != nil {
		return f, err
	}
	if f.Delay, err = duration("delay", spec.Delay); err != nil {
		return f, err
	}
	if f.On, err = endpointNamed(f, spec.On); err != nil {
		return f, err
	}
	return f, f.check()
}

func duration(key, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s: want a duration like 200ms, got %q", key, text)
	}
	return d, nil
}

// endpointNamed finds the endpoint; where a fault has only one, it may be left out.
func endpointNamed(f Fault, name string) (Endpoint, error) {
	names := endpointNames()
	switch {
	case name == "" && f.Kind == FaultForget:
		return PostEvents, nil
	case name == "" && f.Kind == FaultStale:
		return GetSession, nil
	case name == "" && (f.Kind.ofStream() || f.Kind == FaultMute):
		return OpenStream, nil
	case name == "":
		return 0, fmt.Errorf("fault %s: on is missing; one of %s", f.Kind, strings.Join(names[:otherEndpoint], ", "))
	}
	i := slices.Index(names[:otherEndpoint], name)
	if i < 0 {
		return 0, fmt.Errorf("fault %s: on: unknown request %q; one of %s", f.Kind, name, strings.Join(names[:otherEndpoint], ", "))
	}
	return Endpoint(i), nil
}

// spec is the way back, for showing what waits.
func (f Fault) spec() faultSpec {
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return faultSpec{
		Kind: string(f.Kind), On: f.On.String(), SessionID: f.SessionID, Count: f.Count, Skip: f.Skip, For: text(f.For),
		Status: f.Status, RetryAfter: f.RetryAfter, Body: f.Body, Delay: text(f.Delay), KeepKey: f.KeepKey, After: f.After, N: f.N,
	}
}

// parseFaults reads one fault or a list of them.
func parseFaults(body []byte) ([]Fault, error) {
	var specs []faultSpec
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil, errors.New("want a fault, or a list of faults, as JSON")
	}
	if body[0] != '[' {
		body = slices.Concat([]byte("["), body, []byte("]"))
	}
	if err := decodeStrict(body, &specs); err != nil {
		return nil, err
	}
	faults := make([]Fault, 0, len(specs))
	for _, spec := range specs {
		f, err := spec.fault()
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// encode writes JSON for people: no HTML escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(`{}`)
	}
	return b.Bytes()
}
