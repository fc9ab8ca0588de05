package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A question whether the journal can be written that comes while the first
// write of an outage is tried is answered by its failure, and not after the outage.
func TestReadyAskedWhileAWriteFailsIsAnswered(t *testing.T) {
	t.Parallel()
	var q queue
	q.init()
	q.lastCommit = time.Now().Add(-time.Hour)
	waits := &task{done: make(chan struct{})}
	q.next.tasks = append(q.next.tasks, waits)
	probe, err := q.prove()
	if err != nil || probe == nil {
		t.Fatalf("the probe is %v (%v)", probe, err)
	}
	full := errors.New("disk full")
	q.failed(&batch{}, full)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := probe.wait(ctx); !errors.Is(err, full) {
		t.Errorf("the probe ends with %v, want the failure", err)
	}
	if len(q.next.tasks) != 1 || q.next.tasks[0] != waits {
		t.Errorf("%d tasks wait, want the patient one", len(q.next.tasks))
	}
	if again, err := q.prove(); again != nil || !errors.Is(err, full) {
		t.Errorf("asked again it says %v (%v)", again, err)
	}
}
