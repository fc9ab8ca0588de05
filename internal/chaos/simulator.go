package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"functionbridge/internal/agentsim"
)

// simulator is `bridge simulate` in a process of its own.
type simulator struct {
	*process
	url    string
	client *http.Client
}

// startSimulator returns when the simulated API serves.
func startSimulator(log, bridge, mode string) (*simulator, error) {
	p, err := start(log, true, nil, bridge, "simulate", "--addr", "127.0.0.1:0", "--mode", mode)
	if err != nil {
		return nil, err
	}
	first, err := p.out.ReadString('\n')
	base := regexp.MustCompile(`http://[0-9.:]+`).FindString(first)
	if err != nil || base == "" {
		p.clear()
		return nil, p.blame("start", fmt.Errorf("it said %q (%w)", first, causeOf(err)))
	}
	go func() { _, _ = io.Copy(io.Discard, p.out) }() // ends with the process
	return &simulator{process: p, url: base, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}, nil
}

// close ends it.
func (s *simulator) close() {
	if s != nil {
		s.clear()
		s.client.CloseIdleConnections()
	}
}

// do sends one request and decodes the answer, unless into is nil.
func (s *simulator) do(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	req.Header.Set("Authorization", "Bearer chaos")
	req.Header.Set("OpenAI-Beta", "agents=v1")
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode > 299 {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("ask the simulator: %s %s: status %d: %w", method, path, res.StatusCode, err)
	}
	return nil
}

// create makes a session.
func (s *simulator) create(ctx context.Context) (id string, err error) {
	var session struct {
		ID string `json:"id"`
	}
	body := `{"agent":{"model":"simulated"},"environment":{"type":"self_hosted"}}`
	err = s.do(ctx, http.MethodPost, "/v1/agents/sessions", []byte(body), &session)
	return session.ID, err
}

// say gives the session a user message.
func (s *simulator) say(ctx context.Context, session, message string) error {
	return s.do(ctx, http.MethodPost, "/_sim/sessions/"+url.PathEscape(session)+"/message", []byte(message), nil)
}

// strike sets a fault.
func (s *simulator) strike(ctx context.Context, f fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("set a fault: %w", err)
	}
	return s.do(ctx, http.MethodPost, "/_sim/faults", body, nil)
}

// pardon takes back the faults that have not struck.
func (s *simulator) pardon(ctx context.Context) error {
	return s.do(ctx, http.MethodDelete, "/_sim/faults", nil, nil)
}

// counts are how many calls have their result, and how many turns each session has before it.
type counts struct {
	results int
	open    map[string]int
}

func (s *simulator) counts(ctx context.Context) (counts, error) {
	var all struct {
		State struct {
			Results int `json:"results"`
		} `json:"state"`
		Sessions []struct {
			ID   string `json:"session_id"`
			Open int    `json:"open_turns"`
		} `json:"sessions"`
	}
	if err := s.do(ctx, http.MethodGet, "/_sim/requests", nil, &all); err != nil {
		return counts{}, err
	}
	if err := s.do(ctx, http.MethodGet, "/_sim/sessions", nil, &all); err != nil {
		return counts{}, err
	}
	c := counts{results: all.State.Results, open: map[string]int{}}
	for _, one := range all.Sessions {
		c.open[one.ID] = one.Open
	}
	return c, nil
}

// calls lists the calls of a session.
func (s *simulator) calls(ctx context.Context, session string) ([]agentsim.MadeCall, error) {
	var list struct {
		Calls []agentsim.MadeCall `json:"calls"`
	}
	err := s.do(ctx, http.MethodGet, "/_sim/calls?session_id="+url.QueryEscape(session), nil, &list)
	return list.Calls, err
}
