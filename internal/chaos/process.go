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

// bridgeBinary is the bridge to attack: the given one, or one that is built as it is shipped.
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

// process is a child.
type process struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader // nil where standard output goes to the log too
	log     string
	started time.Time
	ended   chan struct{} // closed when err holds how it ended
	err     error
}

// start starts a program with nothing but env in its environment. Its standard error, and with piped its standard output
// too, goes to the file log; without piped the file takes both.
func start(log string, piped bool, env []string, program string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(log), log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(program, args...) //nolint:gosec,noctx // our own programs, which are ended by signals
	p.cmd.Env = env
	file, err := os.Create(log) //nolint:gosec // in our own directory
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer func() { _ = file.Close() }() // the child has its own
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if piped {
		p.cmd.Stdout = nil
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", p.name, err)
		}
		if p.in, err = p.cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", p.name, err)
		}
		p.out = bufio.NewReader(out)
	}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go p.wait()
	return p, nil
}

// wait notes the end. It does not close the pipe of the output, which may hold more.
func (p *process) wait() {
	state, err := p.cmd.Process.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	p.err = err
	close(p.ended)
}

// ask sends a command, "" for none, and decodes the line that answers it.
func (p *process) ask(command string, answer any) error {
	if command != "" {
		if _, err := io.WriteString(p.in, command+"\n"); err != nil {
			return p.blame(command, err)
		}
	}
	line, err := p.out.ReadBytes('\n')
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
	said, _ := os.ReadFile(p.log)
	said = bytes.TrimSpace(said[max(0, len(said)-2000):])
	return fmt.Errorf("%s: %s: %w\n%s", p.name, doing, err, said)
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return p.blame("send "+s.String(), err)
	}
	return nil
}

// kill ends the process at once and returns when it has ended. One that ended before by itself is an error.
func (p *process) kill() error {
	select {
	case <-p.ended:
		return p.blame("run", fmt.Errorf("it ended by itself: %w", causeOf(p.err)))
	default:
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

var errExited = errors.New("exit status 0")

func causeOf(err error) error {
	if err == nil {
		return errExited
	}
	return err
}

// stop asks the process to end, and waits for that. Not to end in time, or badly, is an error.
func (p *process) stop(patience time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		return p.blame("stop", fmt.Errorf("it did not end in %s", patience))
	}
	return p.failure()
}

// failure is how a process failed that has ended as it was asked to.
func (p *process) failure() error {
	if p.err != nil {
		return p.blame("stop", p.err)
	}
	return nil
}

// clear ends the process however it can.
func (p *process) clear() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	if p.in != nil {
		_ = p.in.Close()
	}
}
