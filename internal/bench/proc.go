package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/PID/stat: USER_HZ is 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime is the user and system time that the process has taken so far.
func (p *process) cpuTime() (time.Duration, error) {
	stat, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, p.blame("read its CPU time (Linux only)", err)
	}
	return parseCPUTime(stat)
}

func (p *process) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), name)
}

// parseCPUTime adds utime and stime, fields 14 and 15 of proc_pid_stat(5). The name, field 2, may hold anything.
func parseCPUTime(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc stat %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unexpected /proc stat %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// holding is what a process holds: memory in bytes, now and at its peak, and open files.
type holding struct {
	memory, peak int64
	files        int
}

// holding reads the resident set and counts the open files.
func (p *process) holding() (holding, error) {
	status, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return holding{}, p.blame("read its memory (Linux only)", err)
	}
	h, err := parseMemory(string(status))
	if err != nil {
		return holding{}, err
	}
	files, err := os.ReadDir(p.proc("fd"))
	if err != nil {
		return holding{}, p.blame("count its open files", err)
	}
	h.files = len(files)
	return h, nil
}

// parseMemory reads VmRSS and VmHWM of proc_pid_status(5).
func parseMemory(status string) (h holding, err error) {
	for line := range strings.SplitSeq(status, "\n") {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &h.memory, "VmHWM": &h.peak}[name]
		if into == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return h, fmt.Errorf("unexpected /proc status %q: %w", line, err)
		}
		*into = kilobytes << 10
	}
	if h.memory == 0 || h.peak == 0 {
		return h, errors.New("/proc status tells no memory")
	}
	return h, nil
}

// machine describes where this runs: processors, kernel architecture and Go's version are told by the caller.
func processorName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.SplitSeq(string(info), "\n") {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
