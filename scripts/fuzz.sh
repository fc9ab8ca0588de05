#!/usr/bin/env bash
# Runs every fuzz target of the module for $1 (a Go duration, default 10s), one after the other.
# An input that fails is kept by go test under the package's testdata/fuzz: commit it with the fix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go=${GO:-go}
time=${1:-10s}
ran=0

packages=$($go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)
for package in $packages; do
	listed=$($go test -list '^Fuzz' "$package")
	for target in $listed; do
		[[ $target == Fuzz* ]] || continue # the closing "ok package time" line
		echo "== $package $target"
		$go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
		ran=$((ran + 1))
	done
done
echo "$ran fuzz targets ran for $time each"
