package forward

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// limits bounds the upstream requests at once: all routes together, and each
// route to half of that, so that one slow service cannot take everything.
type limits struct {
	all  *semaphore.Weighted
	half int64
}

func newLimits(maxCalls int) limits {
	return limits{all: semaphore.NewWeighted(int64(maxCalls)), half: max(1, int64(maxCalls)/2)}
}

// enter waits until the route's request may leave. It waits for the route
// first, so that nothing that waits holds one of the slots that all share. The
// error is the context's, also when its end and a free slot come together.
func (l limits) enter(ctx context.Context, of *lane) error {
	if err := of.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := l.all.Acquire(ctx, 1); err != nil {
		of.slots.Release(1)
		return err
	}
	return nil
}

func (l limits) leave(of *lane) {
	l.all.Release(1)
	of.slots.Release(1)
}
