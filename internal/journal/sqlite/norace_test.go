//go:build !race

package sqlite

const slowness = 1
