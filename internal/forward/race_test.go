//go:build race

package forward_test

// slowness divides what only shows in large numbers, since the race detector
// makes HTTP ten times slower.
const slowness = 20
