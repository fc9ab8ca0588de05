package main

import (
	"runtime"
	"testing"
)

func TestCollectorHasRoomButNoMultipleOfALargeHeap(t *testing.T) {
	t.Parallel()
	for held, want := range map[uint64]int{
		0: 400, 4 << 20: 400, 16 << 20: 400, // four times what is held is 64 MiB at most
		32 << 20: 200, 64 << 20: 100, 1 << 30: 100,
	} {
		if got := gcPercentFor(held); got != want {
			t.Errorf("%d MiB held: GOGC %d, want %d", held>>20, got, want)
		}
	}
}

func TestHeldBytesAreThoseOfTheLastCollection(t *testing.T) {
	ballast := make([]byte, 64<<20)
	runtime.GC()
	with := held()
	runtime.KeepAlive(ballast) // its last use
	runtime.GC()
	without := held()
	if freed := int64(with) - int64(without); freed < 60<<20 || without == 0 {
		t.Errorf("%d bytes are held with 64 MiB more, %d without", with, without)
	}
}
