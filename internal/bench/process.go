package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// bridgeBinary is the bridge to measure: the given one, or one that is built as it is shipped.
func bridgeBinary(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		path, err := filepath.Abs(given)
		if err != nil {
			return "", fmt.Errorf("find the bridge: %w", err)
		}
		return path, nil
	}
	path := filepath.Join(dir, "bridge")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", //nolint:gosec // our own path
		"-o", path, "functionbridge/cmd/bridge")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bridge: %w\n%s", err, said)
	}
	return path, nil
}

// process is a child whose standard error goes to a file.
type process struct {
	cmd    *exec.Cmd
	name   string
	signal os.Signal // ends it, where the end of its input does not
	in     io.WriteCloser
	lines  *bufio.Reader // its standard output
	logs   *os.File
}

// patience is how long a child may take to end once it was told to.
const patience = 30 * time.Second

// startProcess starts a program with nothing but env in its environment; when ctx ends it is told to end.
func startProcess(ctx context.Context, logs string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(logs), cmd: exec.CommandContext(ctx, program, args...)} //nolint:gosec // our own programs
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = patience
	p.cmd.Env = env
	var err error
	if p.logs, err = os.Create(logs); err != nil { //nolint:gosec // in our own directory
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd.Stderr = p.logs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.lines = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		_ = p.logs.Close()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// tell sends a command and waits for the line that says that it is done.
func (p *process) tell(command string) error {
	var done struct{}
	return p.ask(command, &done)
}

// ask sends a command, "" for none, and decodes the line that answers it.
func (p *process) ask(command string, answer any) error {
	if command != "" {
		if _, err := io.WriteString(p.in, command+"\n"); err != nil {
			return p.blame(command, err)
		}
	}
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return p.blame(command, err)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return p.blame(command, err)
	}
	return nil
}

// blame adds the end of what the process said to an error.
func (p *process) blame(doing string, err error) error {
	said, _ := os.ReadFile(p.logs.Name())
	said = bytes.TrimSpace(said[max(0, len(said)-2000):])
	return fmt.Errorf("%s: %s: %w\n%s", p.name, doing, err, said)
}

// end tells the process to end, by the end of its input and by signal, and waits for it. It may be called again.
func (p *process) end() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.in.Close()
	if p.signal != nil {
		if err := p.cmd.Process.Signal(p.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return p.blame("end", err)
		}
	}
	kill := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	defer func() { _ = p.logs.Close() }()
	if err := p.cmd.Wait(); err != nil {
		return p.blame("end", err)
	}
	return nil
}
