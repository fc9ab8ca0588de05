// Package api embeds the documents that describe what the bridge serves and
// reads, for the tests that hold them and the code together.
package api

import _ "embed" // the documents

// OpenAPI is openapi.yaml: every endpoint that the bridge serves.
//
//go:embed openapi.yaml
var OpenAPI []byte
