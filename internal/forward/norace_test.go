//go:build !race

package forward_test

const slowness = 1
