package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// smallDisk is a folder on a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("mounting a tmpfs is not allowed here")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file until the disk is full, down to the last byte.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 4096; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (b *bridgeUnderTest) readiness(t *testing.T) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + b.daemon.addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func (b *bridgeUnderTest) waitReadiness(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); b.readiness(t) != want; <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("/readyz does not become %d", want)
		}
	}
}

// A side effect without a record of it could be repeated, so that on a full disk
// none happens, and the call waits until there is room.
func TestNoSideEffectWithoutItsRecordOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "16m")
	b := startBridge(t, agentsim.Kind(), "version: 1\nroutes: {pay: {url: SERVICE/pay, timeout: 2s}}\n", ok, func(s *settings) {
		s.DatabasePath = filepath.Join(disk, "bridge.db")
	})
	id := b.sim.CreateSession(agentsim.SessionSpec{})
	if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	// More than fits into the pages that the journal has already.
	turn := b.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{"memo":"`+strings.Repeat("x", 1<<20)+`"}`).WithID("c1")})
	b.waitReadiness(t, http.StatusServiceUnavailable)
	<-time.After(3 * time.Second) // longer than the call's own timeout
	if n := len(b.service.received("/pay")); n != 0 {
		t.Errorf("%d requests left without a record", n)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}, journal.Confirmed)
	b.waitReadiness(t, http.StatusOK)
	if n := len(b.service.received("/pay")); n != 1 {
		t.Errorf("the service got the call %d times", n)
	}
	if results := b.sim.Results(id); len(results) != 1 || !results[0].Success {
		t.Errorf("the agent got %+v", results)
	}
}
