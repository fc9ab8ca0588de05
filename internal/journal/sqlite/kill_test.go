package sqlite

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"functionbridge/internal/journal"
)

// victimEnv names the journal in the process that is to be killed.
const victimEnv = "JOURNAL_TEST_VICTIM"

// TestVictim is that process: it prints each id once Save has returned.
func TestVictim(t *testing.T) {
	path := os.Getenv(victimEnv) //nolint:forbidigo // the parent test's only way in
	if path == "" {
		t.Skip("runs as the child of TestDurableRowsSurviveAKill")
	}
	s, err := Open(t.Context(), path, Options{Owner: strconv.Itoa(os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		if err := s.Save(t.Context(), pending("lazy "+id), journal.Lazy); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), pending(id), journal.Durable); err != nil {
			t.Fatal(err)
		}
		fmt.Println("saved", id)
	}
}

func TestDurableRowsSurviveAKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	var saved []string
	for round := range 5 {
		saved = append(saved, killAfter(t, path, 20+30*round)...)
	}
	s := openStore(t, path, Options{Owner: "survivor"})
	for _, id := range saved {
		if _, err := s.Call(t.Context(), pending(id).Key); err != nil {
			t.Errorf("%s was saved and is lost: %v", id, err)
		}
	}
	calls, err := s.Unsettled(t.Context())
	if err != nil || int64(len(calls)) != s.Counts()[journal.Pending] || len(calls) < len(saved) {
		t.Errorf("%d unsettled (%v), counted %v, saved %d", len(calls), err, s.Counts(), len(saved))
	}
}

// killAfter starts a victim, kills it after so many rows, and returns what it
// printed up to its end.
func killAfter(t *testing.T, path string, rows int) (saved []string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$")
	child.Env = append(os.Environ(), victimEnv+"="+path) //nolint:forbidigo // a child of this test
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var id string
		if n, _ := fmt.Sscanf(lines.Text(), "saved %s", &id); n == 1 {
			saved = append(saved, id)
		}
		if len(saved) == rows {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || len(saved) < rows {
		t.Fatalf("the child ended (%v) after %d rows, want a kill after %d", err, len(saved), rows)
	}
	return saved
}
