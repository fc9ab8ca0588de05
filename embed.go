// Package functionbridge holds the sample route table for the program; all code
// is below cmd and internal. go:embed reaches no file above its own package, so
// the one line that embeds the table stands here.
package functionbridge

import _ "embed"

// SampleRoutes is routes.yaml, the commented sample table that `bridge demo`
// runs. Its services' addresses come from the variables SHOP_URL and
// CARRIER_URL, and have defaults.
//
//go:embed routes.yaml
var SampleRoutes []byte
