package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// percentile gives the p-th percentile of sorted durations, by nearest rank; 0 without any.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// line is the line of totals.
func (v *verdict) line(seed uint64, faults int, took time.Duration) string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("chaos seed=%d calls=%d non_idempotent=%d long=%d kills=%d stops=%d freezes=%d faults=%d "+
		"unanswered=%d contradicted=%d doubled=%d keys_changed=%d keys_shared=%d arguments_changed=%d wrong=%d failed=%d "+
		"unknown=%d unfounded=%d in_flight_at_kills=%d replied_at_kills=%d unsent=%d repeated=%d reposted=%d recovered=%d "+
		"restart_to_answer_p50=%s max=%s took=%s",
		seed, v.calls, v.nonIdempotent, v.long, v.kills, v.stops, v.freezes, faults,
		v.unanswered, v.contradicted, v.doubled, v.keysChanged, v.keysShared, v.argumentsChanged, v.wrong, v.failed,
		v.unknown, v.unfounded, v.inFlight, v.replied, v.unsent, v.repeated, v.reposted, v.recovered,
		round(percentile(v.restarts, 50)), round(percentile(v.restarts, 100)), took.Round(100*time.Millisecond))
}

const (
	shownProblems = 5  // problems that are printed; the file holds all
	shownLines    = 12 // of the bridge's logs, for each
)

// conclude judges and prints. It returns errRed when something is not as it must be.
func (r *rig) conclude() error {
	v := judge(r.found)
	if len(v.problems) > 0 {
		if err := r.accuse(v.problems); err != nil {
			return err
		}
	}
	if len(v.problems) > 0 || r.opts.keep {
		r.say("journal and logs are in %s", r.dir)
	}
	r.say("%s", v.line(r.opts.seed, r.strikes, time.Since(r.began)))
	if len(v.problems) > 0 {
		return fmt.Errorf("%w: %d problems", errRed, len(v.problems))
	}
	return nil
}

// accuse prints the first problems with what is known of their calls, and writes all into a file.
func (r *rig) accuse(problems []problem) error {
	path := filepath.Join(r.dir, "problems.txt")
	file, err := os.Create(path) //nolint:gosec // in our own directory
	if err != nil {
		return fmt.Errorf("write down the problems: %w", err)
	}
	defer func() { _ = file.Close() }()
	for i, p := range problems {
		if i < shownProblems {
			r.say("%s\n%s", p, r.mentions(p.call.CallID))
		}
		if _, err := fmt.Fprintln(file, p); err != nil {
			return fmt.Errorf("write down the problems: %w", err)
		}
	}
	r.say("all %d problems are in %s", len(problems), path)
	return nil
}

func (p problem) String() string {
	if p.call.CallID == "" {
		return p.what
	}
	made, err := json.Marshal(p.call)
	if err != nil {
		return p.what
	}
	got, err := json.Marshal(p.seen)
	if err != nil {
		return p.what
	}
	return fmt.Sprintf("%s: %s %s\n  simulator: %s\n  upstream: %s", p.what, p.call.Name, p.call.CallID, made, got)
}

// mentions are the last lines about a call in the logs of the bridge's processes.
func (r *rig) mentions(callID string) string {
	if callID == "" {
		return ""
	}
	var lines []string
	for _, l := range r.lives {
		lines = append(lines, grep(l.log, callID)...)
	}
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}

// grep gives the lines of a file that hold a word, with the file's name before each.
func grep(path, word string) (lines []string) {
	file, err := os.Open(path) //nolint:gosec // in our own directory
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = file.Close() }()
	read := bufio.NewReader(file)
	for {
		line, err := read.ReadBytes('\n')
		if bytes.Contains(line, []byte(word)) {
			lines = append(lines, fmt.Sprintf("  %s: %s", filepath.Base(path), bytes.TrimSpace(line)))
		}
		if err != nil {
			if err != io.EOF {
				lines = append(lines, err.Error())
			}
			return lines
		}
	}
}
