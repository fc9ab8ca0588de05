package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asBridge makes the test binary behave as the bridge, so that tests can start
// and kill the real program.
const asBridge = "FUNCTIONBRIDGE_TEST_AS_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" { //nolint:forbidigo // the switch of the test binary
		main()
		return
	}
	goleak.VerifyTestMain(m)
}
