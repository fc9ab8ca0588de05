//go:build race

package sqlite

// slowness divides what only shows in large numbers, since the race detector
// makes SQLite ten times slower.
const slowness = 10
