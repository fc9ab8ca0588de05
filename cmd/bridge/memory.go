package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A bridge holds a few megabytes and makes ten kilobytes of garbage with each
// call. So the collector is given room, which spares most of its cycles, but no
// more than gcRoom: with many sessions a multiple of what they hold would be the
// larger part of the process.
const (
	mostGCPercent  = 400
	leastGCPercent = 100 // Go's default
	gcRoom         = 64 << 20
	// gcLook is how often the room is looked at.
	gcLook = time.Second
)

// boundGarbage sets the room of the collector until the function that it returns
// is called. Nothing is set where GOGC says what it is to be.
func boundGarbage(ctx context.Context) (stop func()) {
	if _, set := lookupEnv("GOGC"); set {
		return func() {}
	}
	debug.SetGCPercent(mostGCPercent)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var looking sync.WaitGroup
	looking.Go(func() { followHeap(ctx) })
	return func() {
		cancel()
		looking.Wait()
	}
}

// followHeap fits the room to what is held.
func followHeap(ctx context.Context) {
	percent := mostGCPercent
	ticker := time.NewTicker(gcLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		// A change stops all goroutines for a moment, so small ones are left.
		if p := gcPercentFor(held()); 10*max(p-percent, percent-p) >= percent {
			percent = p
			debug.SetGCPercent(percent)
		}
	}
}

// gcPercentFor is the GOGC at which so many bytes that are held have gcRoom.
func gcPercentFor(held uint64) int {
	return int(min(max(gcRoom*100/max(held, 1), leastGCPercent), mostGCPercent))
}

// held is what the collector found in use at its last cycle, which is what its
// percentage is of, in bytes.
func held() (bytes uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			bytes += s.Value.Uint64()
		}
	}
	return bytes
}
